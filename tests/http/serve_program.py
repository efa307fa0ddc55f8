"""A server with an application that starts badly, is slow or dies, for tests of the process around it: run as
a program, or called by one that has imported it.

    LISTEN WORKERS SHUTDOWN_SECONDS STARTUP
"""

import asyncio
import os
import sys
import time
from collections.abc import MutableMapping
from typing import Any

from berth.cli.command import CommandError
from berth.cli.serve import serve
from berth.runtime.settings import Settings
from berth.serving import processes, worker


async def application(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
    startup = sys.argv[4]
    if scope["type"] == "lifespan":
        await receive()
        if startup == "dies":
            os.kill(os.getpid(), 9)
        if startup == "raises":
            raise OSError("the database is not there")
        if startup == "fails":
            await send({"type": "lifespan.startup.failed", "message": "the database is broken"})
            return
        if startup == "slow":
            print("starting", flush=True)
            await asyncio.sleep(60)
        if startup == "blocked":
            print("starting", flush=True)
            time.sleep(2)
        await send({"type": "lifespan.startup.complete"})
        print("opened", flush=True)
        await receive()
        print("closed", flush=True)
        if startup == "unheard":
            time.sleep(60)
        await send({"type": "lifespan.shutdown.complete"})
        return
    if scope["path"] == "/upload":
        print("asked", flush=True)
        while (await receive()).get("more_body"):
            pass
    if scope["path"] == "/block":
        print("blocked", flush=True)
        time.sleep(60)
    if scope["path"] == "/slow":
        print("asked", flush=True)
        await asyncio.sleep(float(scope["query_string"]))
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"%d" % os.getpid()})


def main() -> int:
    listen, workers, shutdown_seconds, startup = sys.argv[1:]
    if startup == "unheard":
        # As where the kernel tells nobody that the parent is gone.
        processes._end_with_parent = lambda heartbeat: None
        worker.STOP_GRACE_S = 0.5  # type: ignore[attr-defined, assignment]
    if startup == "dies":
        processes._PAUSE_FIRST_S = processes._PAUSE_LONGEST_S = 0.01  # type: ignore[misc]
    settings = Settings(
        listen=listen,
        workers=int(workers),
        shutdown_seconds=int(shutdown_seconds),
        worker_hung_seconds=5,
        log_format="text",
    )
    try:
        return serve(settings, lambda settings, turns, number, metrics: application)
    except CommandError as error:
        print(f"cannot serve: {error}", file=sys.stderr)
        return 1


# The housekeeper's process imports this file too.
if __name__ == "__main__":
    sys.exit(main())
