"""Log lines go out through a buffer that has an end: a log that nobody reads stops nobody."""

import json
import logging
import os
import select
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from berth.runtime.log_output import BUFFER_CHARACTERS_MAX, LogOutput
from berth.runtime.settings import Settings
from berth.runtime.telemetry import configure_logging

PIPE_BYTES_MAX = 64 << 10
LINE = "x" * 99 + "\n"


class Pipe:
    """A log, and its reader."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.output = LogOutput(self.writing, lambda dropped: f"{dropped} lines are missing\n")

    def wait_until_full(self) -> None:
        deadline_s = time.monotonic() + 30
        while select.select([], [self.writing], [], 0)[1]:
            assert time.monotonic() < deadline_s, "the pipe is not full"
            time.sleep(0.001)

    def read(self, until: Callable[[str], bool]) -> str:
        text = ""
        while not until(text):
            text += os.read(self.reading, 1 << 16).decode()
        return text


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    os.close(pipe.reading)
    pipe.output.close()


def test_lines_come_out_in_order(pipe: Pipe) -> None:
    for number in range(1000):
        pipe.output.write(f"{number}\n")
    text = pipe.read(lambda text: text.endswith("999\n"))
    assert text == "".join(f"{number}\n" for number in range(1000))
    pipe.output.drain()
    assert pipe.output.dropped == 0


def test_lines_of_two_processes_do_not_mix(pipe: Pipe) -> None:
    """Workers share one pipe, and a reader that is slow has each of them wait in the middle of a write."""
    outputs = [pipe.output, LogOutput(os.dup(pipe.writing), lambda dropped: "missing\n")]
    lines = ["a" * 700, "é" * 1000]
    count = 150
    for _ in range(count):
        for output, line in zip(outputs, lines, strict=True):
            output.write(line + "\n")
    text = b""
    while text.count(b"\n") < 2 * count:
        text += os.read(pipe.reading, 1 << 10)
    outputs[1].close()
    assert Counter(text.decode(errors="replace").splitlines()) == dict.fromkeys(lines, count)


def test_a_reader_that_does_not_read_does_not_block_the_writer(pipe: Pipe) -> None:
    count = (BUFFER_CHARACTERS_MAX + 2 * PIPE_BYTES_MAX) // len(LINE) + 100
    for _ in range(count):
        pipe.output.write(LINE)
    dropped = pipe.output.dropped
    assert 0 < dropped < count
    text = pipe.read(lambda text: "missing" in text)
    assert text.count(LINE) == count - dropped
    assert text.endswith(f"\n{dropped} lines are missing\n")
    pipe.output.write("later\n")
    assert pipe.read(lambda text: text.endswith("later\n")) == "later\n", "it is said once"
    assert pipe.output.dropped == dropped


def test_draining_has_a_deadline(pipe: Pipe) -> None:
    pipe.output.write("x" * PIPE_BYTES_MAX * 2)
    began_s = time.monotonic()
    pipe.output.drain(0.05)
    assert time.monotonic() - began_s < 10


def test_a_log_without_a_reader() -> None:
    pipe = Pipe()
    os.close(pipe.reading)
    for _ in range(3):
        pipe.output.write(LINE)
        pipe.output.drain()
    assert pipe.output.dropped == 3
    pipe.output.close()


def test_lines_for_a_full_disk_are_dropped_and_counted() -> None:
    output = LogOutput(os.open("/dev/full", os.O_WRONLY), lambda dropped: "missing\n")
    output.write(LINE)
    output.drain()
    assert output.dropped == 1
    output.close()


def test_a_fork_in_the_middle_of_a_write_mixes_no_lines(pipe: Pipe) -> None:
    """The parent's lines are the parent's to write, and the child has a thread of its own."""
    blocked = "x" * PIPE_BYTES_MAX * 2 + "\n"
    pipe.output.write(blocked)
    pipe.wait_until_full()
    child = os.fork()
    if child == 0:
        try:
            pipe.output.write("the child's\n")
            pipe.output.drain(10)
        finally:
            os._exit(0)
    text = pipe.read(lambda text: "child" in text and text.count("\n") == 2)
    assert os.waitpid(child, 0)[1] == 0
    assert text.count("x") == len(blocked) - 1
    assert text.count("the child's\n") == 1


def test_records_go_through_it(monkeypatch: pytest.MonkeyPatch, pipe: Pipe) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with os.fdopen(pipe.writing, "w") as stream:
        try:
            configure_logging(Settings(log_format="json"), stream)
            logging.getLogger("berth.test").warning("hello")
            line = pipe.read(lambda text: text.endswith("\n"))
            assert json.loads(line)["message"] == "hello"
            logging.getLogger("berth.test").warning("bye")
            root.handlers[0].close()
            assert json.loads(pipe.read(lambda text: text.endswith("\n")))["message"] == "bye"
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)


def test_the_thread_does_not_handle_signals(pipe: Pipe) -> None:
    pipe.output.write(LINE)
    # The threads of other tests may not have ended yet.
    *_, thread = (thread for thread in threading.enumerate() if thread.name == "log")
    with open(f"/proc/self/task/{thread.native_id}/status") as status:
        [blocked] = [int(line.split()[1], 16) for line in status if line.startswith("SigBlk")]
    assert blocked & (1 << 14), "SIGTERM is for the main thread"
