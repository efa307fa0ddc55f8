"""A way to a database that breaks: a proxy that, while told to, cuts connections under their statements.

What a client sends is, at random, passed on; or lost with the connection; or passed on, and the answer lost
with the connection; or passed on late, when the client has long been told that its connection is gone. Only
the last two leave the client not knowing, and the last one changes the truth after the client has looked.
"""

import asyncio
import contextlib
import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Final

from tests.servers import HOST, free_port

FATES: Final = {"passed": 94, "lost": 2, "unanswered": 2, "late": 2}
"""What becomes of a piece of what a client sends, in percent."""

LATE_MAX_S: Final = 0.3


class Proxy:
    """Listens on a port of its own until it is closed; ``is_faulty`` says whether it cuts."""

    def __init__(self, target_port: int, dice: random.Random) -> None:
        self.port = free_port()
        self.is_faulty = False
        self.fates: Counter[str] = Counter()
        self._target_port = target_port
        self._dice = dice

    async def serve(self, ready: threading.Event, ending: asyncio.Event) -> None:
        server = await asyncio.start_server(self._connect, HOST, self.port)
        ready.set()
        await ending.wait()
        server.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self._target_port)
        except OSError:
            writer.close()
            return
        back = asyncio.create_task(_pump(far_reader, writer))
        try:
            with contextlib.suppress(OSError):
                while piece := await reader.read(1 << 16):
                    fate = self._fate()
                    if fate != "passed":
                        back.cancel()
                        # Reset, so that the client learns of it at once.
                        writer.transport.abort()
                    if fate == "late":
                        await asyncio.sleep(self._dice.uniform(0, LATE_MAX_S))
                    if fate != "lost":
                        far_writer.write(piece)
                        await far_writer.drain()
                    if fate != "passed":
                        # The statement is carried out before the database learns that nobody listens.
                        await asyncio.sleep(LATE_MAX_S)
                        return
        finally:
            back.cancel()
            for end in (writer, far_writer):
                end.close()
                with contextlib.suppress(OSError):
                    await end.wait_closed()

    def _fate(self) -> str:
        if not self.is_faulty:
            return "passed"
        fate = self._dice.choices(list(FATES), list(FATES.values()))[0]
        self.fates[fate] += 1
        return fate


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    writer.close()


@contextlib.contextmanager
def proxy_to(port: int, dice: random.Random) -> Iterator[Proxy]:
    """A proxy before a port on loopback, in a thread of its own."""
    proxy = Proxy(port, dice)
    ready, ending = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def run() -> None:
        await proxy.serve(ready, ending)
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for task in connections:
            task.cancel()
        # Each closes its sockets: a socket that is left open fails whichever test collects it.
        await asyncio.gather(*connections, return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    assert ready.wait(10), "the proxy does not listen"
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join(10)
        loop.close()
