"""``berth up`` whose parts need not be imported again: they are forked from it, each into a session of its
own, with its own environment, folder and log. For tests of what parts do. How they are started is tested
where ``berth up`` is started by its name (tests/http/test_up.py)."""

import asyncio
import os
import signal
from pathlib import Path

from berth import cli
from berth.cli import supervisor
from berth.cli.supervisor import ChildProcess
from berth.serving import Heartbeat
from tests.warm_start import become


class ForkedPart:
    """As much of ``asyncio.subprocess.Process`` as the supervisor uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    async def wait(self) -> int:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        descriptor = os.pidfd_open(self.pid)
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


async def fork_part(child: ChildProcess, heartbeat: Heartbeat) -> ForkedPart:
    asked = {
        "entry": "berth.cli:main",
        "words": list(child.words),
        "env": supervisor._make_environment(child.variables) | heartbeat.variables,
        "cwd": str(child.folder),
        "log": str(Path(child.log).absolute()),
    }
    die_with_parent = supervisor._die_with(os.getpid())
    pid = os.fork()
    if pid == 0:
        # What the event loop of the parent has set.
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if die_with_parent is not None:
            die_with_parent()
        become(asked, [], kept=heartbeat.file)
    return ForkedPart(pid)


def main() -> int:
    supervisor._start = fork_part  # type: ignore[assignment]
    return cli.main()
