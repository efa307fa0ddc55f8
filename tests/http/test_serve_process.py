"""The server process: it finishes what it has begun, and says clearly why it cannot start."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers import ROOT, free_port
from tests.waiting import WITHIN_S
from tests.warm_start import BERTH, WarmProcess

pytestmark = [
    pytest.mark.http,
    pytest.mark.skipif(sys.platform != "linux", reason="workers are forked and watched as on Linux"),
]

PROGRAM = ROOT / "tests" / "http" / "serve_program.py"


class Process:
    """``limit``: what a shell does before it runs the program. Without one, and without ``by_name``, the
    program is not started anew."""

    def __init__(
        self,
        directory: Path,
        workers: int,
        shutdown_s: int,
        startup: str,
        listen: str,
        limit: str,
        by_name: bool,
    ) -> None:
        self.log_path = directory / "output"
        self.host, _, port = listen.rpartition(":")
        self.port = int(port)
        words = [listen, str(workers), str(shutdown_s), startup]
        # Its folder is where the housekeeper finds, and makes, the database.
        self.popen: subprocess.Popen[bytes] | WarmProcess
        if not limit and not by_name:
            entry = "tests.http.serve_program:main"
            self.popen = BERTH.start(entry, words, os.environ, self.log_path, directory)
            return
        with self.log_path.open("ab") as output:
            self.popen = subprocess.Popen(
                ["sh", "-c", f'{limit} exec "$@"', "sh", sys.executable, str(PROGRAM), *words],
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd=directory,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def get(self, path: str = "/") -> bytes:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=WITHIN_S)
        with contextlib.closing(connection):
            connection.request("GET", path)
            return connection.getresponse().read()

    @property
    def children(self) -> set[int]:
        """Of all its threads."""
        lists = Path(f"/proc/{self.popen.pid}/task").glob("*/children")
        return {int(child) for children in lists for child in children.read_text().split()}

    def workers(self) -> set[int]:
        """Those of them that answer: connections are spread over them."""
        return {int(self.get()) for _ in range(60)}

    def wait_until_up(self) -> None:
        self.wait_for(lambda: bool(self.get()))

    def wait_for_line(self, words: str) -> None:
        self.wait_for(lambda: words in self.log)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            assert self.popen.poll() is None, self.log
            with contextlib.suppress(OSError, http.client.HTTPException):
                if condition():
                    return
            time.sleep(0.02)
        raise AssertionError(f"the condition did not come; its output: {self.log}")

    def end(self) -> int:
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(WITHIN_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator["Callable[..., Process]"]:
    started: list[Process] = []

    def begin(
        workers: int = 1,
        shutdown_s: int = 10,
        startup: str = "",
        listen: str = "",
        limit: str = "",
        by_name: bool = False,
    ) -> Process:
        listen = listen or f"127.0.0.1:{free_port()}"
        directory = tmp_path / str(len(started))
        directory.mkdir()
        started.append(Process(directory, workers, shutdown_s, startup, listen, limit, by_name))
        return started[-1]

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.popen.pid, signal.SIGKILL)
        process.popen.wait()


# -- ending -------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_a_request_in_flight_is_finished(start: Callable[..., Process], workers: int) -> None:
    server = start(workers)
    server.wait_for(lambda: server.log.count("opened") == workers)
    server.wait_until_up()
    answers: list[bytes] = []
    client = threading.Thread(target=lambda: answers.append(server.get("/slow?1")))
    client.start()
    server.wait_for_line("asked")
    assert server.end() == 0
    client.join()
    assert len(answers) == 1
    assert answers[0].isdigit()
    assert server.log.count("closed") == workers


def test_one_that_takes_too_long_is_not(start: Callable[..., Process]) -> None:
    server = start(shutdown_s=1)
    server.wait_until_up()
    failures: list[Exception] = []

    def ask() -> None:
        try:
            server.get("/slow?15")
        except (OSError, http.client.HTTPException) as failure:
            failures.append(failure)

    client = threading.Thread(target=ask)
    client.start()
    server.wait_for_line("asked")
    assert server.end() == 0
    client.join(WITHIN_S)
    assert len(failures) == 1
    assert "1 requests did not finish within 1 s and are aborted" in server.log
    assert server.log.count("closed") == 1, "the application is shut down in good order all the same"


def test_a_kept_connection_does_not_hold_it_up(start: Callable[..., Process]) -> None:
    # As long as it may wait for requests, nobody waits here.
    server = start(shutdown_s=int(2 * WITHIN_S))
    server.wait_until_up()
    connection = http.client.HTTPConnection(server.host, server.port, timeout=WITHIN_S)
    with contextlib.closing(connection):
        connection.request("GET", "/")
        connection.getresponse().read()
        assert server.end() == 0


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("startup", ["slow", "blocked"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_it_starts_ends_it(
    start: Callable[..., Process], workers: int, startup: str, number: signal.Signals
) -> None:
    server = start(workers, startup=startup)
    server.wait_for_line("starting")
    server.popen.send_signal(number)
    assert server.popen.wait(WITHIN_S) == 0
    assert "killed" not in server.log


def test_a_stop_at_any_moment_of_its_start_ends_it(start: Callable[..., Process]) -> None:
    """Before its handlers are in place a signal ends it as it would any process; after that, it is heard."""
    for milliseconds in range(0, 1000, 100):
        server = start(2, startup="blocked", by_name=True)
        time.sleep(milliseconds / 1000)
        assert server.end() in (0, -signal.SIGTERM)
        assert "killed" not in server.log
        assert "Traceback" not in server.log


def test_a_terminal_signals_all_processes_at_once(start: Callable[..., Process]) -> None:
    server = start(2)
    server.wait_for(lambda: server.log.count("opened") == 2)
    os.killpg(server.popen.pid, signal.SIGINT)
    assert server.popen.wait(WITHIN_S) == 0
    assert server.log.count("closed") == 2
    assert "ERROR" not in server.log


def test_a_stopped_server_says_that_it_closes(start: Callable[..., Process]) -> None:
    server = start()
    server.wait_until_up()
    connection = http.client.HTTPConnection(server.host, server.port, timeout=WITHIN_S)
    with contextlib.closing(connection):
        connection.request("GET", "/slow?2")
        server.wait_for_line("asked")
        server.popen.send_signal(signal.SIGTERM)
        reply = connection.getresponse()
        assert reply.getheader("connection") == "close"
        assert reply.read().isdigit()
    assert server.popen.wait(WITHIN_S) == 0


def test_a_worker_that_ends_by_itself_ends_the_server(start: Callable[..., Process]) -> None:
    server = start(2)
    server.wait_for(lambda: server.log.count("opened") == 2)
    os.kill(int(server.get()), signal.SIGTERM)
    assert server.popen.wait(WITHIN_S) == 1
    assert "ended (status 0); the server stops" in server.log
    # The one that was told to, and the other one, in good order.
    assert server.log.count("closed") == 2


# -- accidents ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGKILL, "ended (SIGKILL); restarting it in 0.5 s"),
        (signal.SIGSTOP, "was killed: no heartbeat for 5 s; restarting it in 0.5 s"),
    ],
)
def test_a_worker_that_is_killed_or_hangs_is_replaced_while_the_other_serves(
    start: Callable[..., Process], number: signal.Signals, words: str
) -> None:
    server = start(2)
    server.wait_for(lambda: server.log.count("opened") == 2)
    kept = http.client.HTTPConnection(server.host, server.port, timeout=WITHIN_S)
    with contextlib.closing(kept):
        kept.request("GET", "/")
        other = int(kept.getresponse().read())
        [gone] = server.workers() - {other}
        os.kill(gone, number)
        server.wait_for_line(words)
        server.wait_for(lambda: server.log.count("opened") == 3)
        kept.request("GET", "/")
        assert int(kept.getresponse().read()) == other, "nothing has happened to this one"
    assert not Path(f"/proc/{gone}").exists()
    assert len(server.workers() - {gone, other}) == 1
    assert server.end() == 0
    assert server.log.count("closed") == 2


def test_one_that_keeps_dying_ends_the_server(start: Callable[..., Process]) -> None:
    server = start(startup="dies")
    assert server.popen.wait(WITHIN_S) == 1
    assert server.log.count("ended (SIGKILL); restarting it in") == 6
    assert server.log.count("ended (SIGKILL); the server stops") == 1


def test_a_housekeeper_that_is_killed_is_replaced(start: Callable[..., Process]) -> None:
    server = start()
    server.wait_until_up()
    worker = int(server.get())
    [first] = server.children - {worker}
    os.kill(first, signal.SIGKILL)
    server.wait_for_line("the housekeeper ended (SIGKILL); restarting it in 1 s")
    server.wait_for(lambda: len(server.children - {worker, first}) == 1)
    [second] = server.children - {worker, first}
    server.wait_for(lambda: "berth.cli.housekeeper" in Path(f"/proc/{second}/cmdline").read_text())
    os.kill(second, signal.SIGKILL)
    server.wait_for_line("the housekeeper ended (SIGKILL); restarting it in 2 s")
    server.wait_for(lambda: len(server.children - {worker}) == 1)
    assert int(server.get()) == worker
    assert server.end() == 0
    assert "Traceback" not in server.log


def test_a_housekeeper_that_hangs_is_replaced(start: Callable[..., Process]) -> None:
    """The first one is forked, the next ones are programs of their own."""
    server = start()
    server.wait_until_up()
    worker = int(server.get())
    gone = {worker}
    for pause_s in (1, 2):
        server.wait_for(lambda: len(server.children - gone) == 1)
        [hung] = server.children - gone
        # Then it has begun, and soon shown its life once: before that it has more time.
        server.wait_for(lambda hung=hung: os.getpriority(os.PRIO_PROCESS, hung) >= 10)  # type: ignore[misc]
        time.sleep(2)
        assert ("berth.cli.housekeeper" in Path(f"/proc/{hung}/cmdline").read_text()) == (pause_s == 2)
        os.kill(hung, signal.SIGSTOP)
        gone.add(hung)
        server.wait_for_line(
            f"the housekeeper was killed: no heartbeat for 5 s; restarting it in {pause_s} s"
        )
    server.wait_for(lambda: len(server.children - gone) == 1)
    assert int(server.get()) == worker
    assert server.end() == 0
    assert "Traceback" not in server.log


def test_workers_go_with_a_parent_that_is_killed(start: Callable[..., Process]) -> None:
    server = start()
    server.wait_until_up()
    worker = int(server.get())
    server.popen.kill()
    server.popen.wait()
    wait_until_gone(worker)
    with pytest.raises(OSError, match="refused"):
        server.get()


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + WITHIN_S
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.02)


@pytest.mark.parametrize("hangs", [False, True])
def test_an_orphan_ends_though_a_client_is_slow(start: Callable[..., Process], hangs: bool) -> None:
    """It has half a minute when it is told to stop by its parent, and less when that is gone."""
    server = start(shutdown_s=30)
    server.wait_until_up()
    worker = int(server.get())
    with socket.create_connection((server.host, server.port)) as slow:
        slow.sendall(b"PUT /upload HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\nx")
        server.wait_for_line("asked")
        if hangs:
            # Its event loop does not run any more: only the kernel can end it.
            with socket.create_connection((server.host, server.port)) as blocking:
                blocking.sendall(b"GET /block HTTP/1.1\r\nhost: a\r\n\r\n")
                server.wait_for_line("blocked")
        server.popen.kill()
        server.popen.wait()
        deadline = time.monotonic() + 15
        while Path(f"/proc/{worker}").exists():
            assert time.monotonic() < deadline, "it lives on"
            with contextlib.suppress(OSError):
                slow.sendall(b"x")
            time.sleep(0.1)


def test_an_orphan_without_a_signal_ends_by_its_own_deadline(start: Callable[..., Process]) -> None:
    """Its application hangs at the end: only the kernel can end it."""
    server = start(startup="unheard")
    server.wait_until_up()
    worker = int(server.get())
    server.popen.kill()
    server.popen.wait()
    wait_until_gone(worker)
    assert server.log.count("closed") == 1


def test_it_is_quiet_and_says_what_it_serves(start: Callable[..., Process]) -> None:
    server = start(by_name=True)
    server.wait_until_up()
    assert server.end() == 0
    said = [line for line in server.log.splitlines() if line not in ("opened", "closed")]
    lines = [line.partition(" INFO berth.cli.serve ")[2] for line in said]
    address = f"http://127.0.0.1:{server.port}"
    assert lines[0].endswith(f"{address}, database sqlite:///berth.db, auth noauth, workers 1")
    assert lines[1:] == ["stopped"]


# -- not starting -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("startup", "message"),
    [("raises", "cannot start: the database is not there"), ("fails", "the database is broken")],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_failed_startup_ends_it(
    start: Callable[..., Process], workers: int, startup: str, message: str
) -> None:
    server = start(workers, startup=startup)
    assert server.popen.wait(WITHIN_S) == 1
    assert message in server.log
    assert "Traceback" not in server.log


def test_next_to_no_files_are_refused(start: Callable[..., Process]) -> None:
    server = start(limit="ulimit -n 64;")
    assert server.popen.wait(WITHIN_S) == 1
    assert server.log.startswith(
        "cannot serve: the limit of open files is 64, and a server needs at least 147"
    )


def test_few_files_are_warned_of(start: Callable[..., Process]) -> None:
    server = start(limit="ulimit -n 256;")
    server.wait_until_up()
    assert server.end() == 0
    assert (
        "connections_max is 4096, but the limit of open files leaves room for 112 connections" in server.log
    )


def test_a_limit_that_may_be_raised_is_raised(start: Callable[..., Process]) -> None:
    server = start(limit="ulimit -S -n 64;")
    server.wait_until_up()
    limits = Path(f"/proc/{int(server.get())}/limits").read_text()
    [files] = [line.split()[3] for line in limits.splitlines() if line.startswith("Max open files")]
    assert int(files) >= 4096
    assert server.end() == 0
    assert "WARNING" not in server.log


def test_an_address_that_is_taken(start: Callable[..., Process]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        server = start(listen=f"127.0.0.1:{other.getsockname()[1]}")
        assert server.popen.wait(WITHIN_S) == 1
        listen = f"127.0.0.1:{server.port}"
    assert server.log == f"cannot serve: cannot listen on {listen}: Address already in use\n"


def test_an_address_that_another_of_us_serves(start: Callable[..., Process]) -> None:
    """The workers' own sockets would share the port in silence."""
    first = start()
    first.wait_until_up()
    second = start(listen=f"127.0.0.1:{first.port}")
    assert second.popen.wait(WITHIN_S) == 1
    assert "Address already in use" in second.log


def test_a_name_is_resolved(start: Callable[..., Process]) -> None:
    server = start(listen=f"localhost:{free_port()}")
    server.wait_until_up()
    assert server.end() == 0
