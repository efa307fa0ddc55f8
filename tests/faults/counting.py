"""A count that goes up in public: whoever reads it can be told to be too old.

A read may be answered with anything written until its answer, but with nothing older than what had been
acknowledged when it was sent.
"""

import contextlib
import threading
import time
from collections.abc import Iterator

from tests.faults.lines import Line, line_to
from tests.faults.load import make_providers
from tests.servers import ServerProcess
from tests.waiting import WITHIN_S


class Counting(threading.Thread):
    """Writes numbers through one server, one after the other, as the name of a provider."""

    def __init__(self, server: ServerProcess, provider: str) -> None:
        super().__init__(daemon=True)
        self.line = Line(server)
        self.provider = provider
        self.acknowledged = 0
        self.ending = threading.Event()

    def run(self) -> None:
        with contextlib.closing(self.line):
            while not self.ending.is_set():
                number = self.acknowledged + 1
                self.line(
                    "PUT", f"/resource_providers/{self.provider}", {"name": name(self.provider, number)}
                )
                self.acknowledged = number
                self.ending.wait(0.005)

    def wait_for(self, number: int) -> None:
        """Until so many were acknowledged."""
        deadline_s = time.monotonic() + WITHIN_S
        while self.acknowledged < number:
            assert self.is_alive(), "the count has ended before its time"
            assert time.monotonic() < deadline_s, f"{self.acknowledged} of {number} were acknowledged in time"
            time.sleep(0.01)


def name(provider: str, number: int) -> str:
    return f"{provider}-{number}"


@contextlib.contextmanager
def counting(server: ServerProcess, provider: str) -> Iterator[Counting]:
    thread = Counting(server, provider)
    with line_to(server) as line:
        make_providers(line, [provider], {})
    thread.start()
    try:
        yield thread
        assert thread.is_alive(), "the count has ended before its time"
    finally:
        thread.ending.set()
        thread.join(60)


def assert_fresh(server: ServerProcess, counter: Counting) -> None:
    with line_to(server) as line:
        least = counter.acknowledged
        body = line("GET", f"/resource_providers/{counter.provider}")
        number = int(body["name"].rpartition("-")[2]) if body["name"] != f"host-{counter.provider}" else 0
        assert number >= least, f"{least} was acknowledged before the read was sent, which saw {number}"
