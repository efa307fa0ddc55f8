"""Telemetry: the lines and numbers that operators see."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest

from berth.api.kernel.http import Request, Response
from berth.runtime.settings import Settings
from berth.runtime.telemetry import ACCESS_LOGGER, Telemetry, configure_logging
from tests.clocks import FakeClock

pytestmark = pytest.mark.fast

TEXT = Settings(log_format="text")
JSON = Settings(log_format="json")


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root, access = logging.getLogger(), logging.getLogger(ACCESS_LOGGER)
    before = root.handlers[:], root.level, access.level
    access.setLevel(logging.INFO)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    access.setLevel(before[2])


def exchange(path: str = "/traits", query: str = "") -> tuple[Request, Response]:
    request = Request("GET", path, query, request_id="req-1", client="10.1.2.3")
    version = ("openstack-api-version", "placement 1.39")
    return request, Response(200, b"12345", headers=[version])


async def count(telemetry: Telemetry, *exchanges: tuple[Request, Response, str, float]) -> None:
    """Exchanges that are answered together: lines are written before the event loop waits again."""
    for exchanged in exchanges:
        telemetry.request(*exchanged)
    await asyncio.sleep(0)


def metric(telemetry: Telemetry, name: str) -> str:
    lines = telemetry.exposition().decode().splitlines()
    return next(line.removeprefix(name).strip() for line in lines if line.startswith(name))


async def test_an_access_line_is_written_as_text() -> None:
    stream = io.StringIO()
    await count(Telemetry(TEXT, FakeClock(), stream), (*exchange(query="name=x"), "/traits", 0.0123456))
    assert stream.getvalue() == (
        '2026-01-01T00:00:00.000Z INFO berth.access [req-1] 10.1.2.3 "GET /traits?name=x" '
        "status: 200 len: 5 microversion: 1.39 ms: 12.346\n"
    )


async def test_an_access_line_is_written_as_json() -> None:
    stream = io.StringIO()
    await count(Telemetry(JSON, FakeClock(), stream), (*exchange("/a\nb"), "unknown", 0.5))
    assert stream.getvalue().count("\n") == 1
    assert json.loads(stream.getvalue()) == {
        "time": "2026-01-01T00:00:00.000Z",
        "level": "INFO",
        "logger": "berth.access",
        "request_id": "req-1",
        "client": "10.1.2.3",
        "method": "GET",
        "path": "/a\nb",
        "status": 200,
        "length": 5,
        "microversion": "1.39",
        "milliseconds": 500.0,
    }


async def test_the_id_that_the_caller_sent_is_in_the_line() -> None:
    sent = "req-01234567-89ab-cdef-0123-456789abcdef"
    for given, about, more in ((sent, f"[req-1 {sent}]", sent), ("req-x\nforged", "[req-1]", None)):
        request = Request("GET", "/x", headers={"x-openstack-request-id": given}, request_id="req-1")
        text, lines = io.StringIO(), io.StringIO()
        for settings, stream in ((TEXT, text), (JSON, lines)):
            await count(Telemetry(settings, FakeClock(), stream), (request, Response(200), "/x", 0.1))
        assert about in text.getvalue()
        line = json.loads(lines.getvalue())
        assert (line["request_id"], line.get("global_request_id")) == ("req-1", more)


async def test_a_path_cannot_forge_a_line() -> None:
    stream = io.StringIO()
    await count(Telemetry(TEXT, FakeClock(), stream), (*exchange("/x\n2026 INFO forged"), "unknown", 0))
    assert stream.getvalue().count("\n") == 1


async def test_no_access_lines_above_info() -> None:
    logging.getLogger(ACCESS_LOGGER).setLevel(logging.WARNING)
    stream = io.StringIO()
    telemetry = Telemetry(TEXT, FakeClock(), stream)
    await count(telemetry, (*exchange(), "/traits", 0))
    assert stream.getvalue() == ""
    assert metric(telemetry, 'berth_requests_total{method="GET",route="/traits",status="200"}') == "1.0"


async def test_requests_are_counted_by_method_route_and_status() -> None:
    stream = io.StringIO()
    telemetry = Telemetry(TEXT, FakeClock(), stream)
    await count(telemetry, *[(*exchange("/traits/CUSTOM_A"), "/traits/{name}", 0.002)] * 3)
    assert stream.getvalue().count("\n") == 3
    labels = 'method="GET",route="/traits/{name}"'
    assert metric(telemetry, f'berth_requests_total{{{labels},status="200"}}') == "3.0"
    assert metric(telemetry, f'berth_request_seconds_bucket{{le="0.001",{labels}}}') == "0.0"
    assert metric(telemetry, f'berth_request_seconds_bucket{{le="0.0025",{labels}}}') == "3.0"


async def test_invented_methods_share_one_label() -> None:
    telemetry = Telemetry(TEXT, FakeClock(), io.StringIO())
    await count(telemetry, *((Request(f"M{number}", "/"), Response(405), "/", 0) for number in range(5)))
    assert metric(telemetry, 'berth_requests_total{method="other",route="/",status="405"}') == "5.0"


def test_the_writer_is_observed() -> None:
    telemetry = Telemetry(TEXT, FakeClock(), io.StringIO())
    telemetry.queued(7)
    telemetry.appended(42, 3, 0.004)
    telemetry.rejected("CapacityExceeded")
    telemetry.rejected("CapacityExceeded")
    assert metric(telemetry, "berth_queue_commands") == "7.0"
    assert metric(telemetry, "berth_journal_index") == "42.0"
    assert metric(telemetry, "berth_batch_commands_sum") == "3.0"
    assert metric(telemetry, 'berth_append_seconds_bucket{le="0.005"}') == "1.0"
    assert metric(telemetry, 'berth_rejections_total{kind="CapacityExceeded"}') == "2.0"


def test_records_carry_the_request_and_the_exception() -> None:
    stream = io.StringIO()
    configure_logging(JSON, stream)
    try:
        raise ValueError("wrong")
    except ValueError:
        logging.getLogger("berth.test").exception("it %s", "failed", extra={"request_id": "req-9"})
    line = json.loads(stream.getvalue())
    assert (line["level"], line["logger"], line["message"]) == ("ERROR", "berth.test", "it failed")
    assert line["request_id"] == "req-9"
    assert "global_request_id" not in line
    assert "ValueError: wrong" in line["exception"]


def test_records_as_text_and_below_the_level() -> None:
    stream = io.StringIO()
    configure_logging(Settings(log_format="text", log_level="warning"), stream)
    logging.getLogger("berth.test").info("not this")
    logging.getLogger("berth.test").warning("but this", extra={"request_id": "req-2"})
    assert stream.getvalue().endswith(" WARNING berth.test [req-2] but this\n")
    assert stream.getvalue().count("\n") == 1


def test_a_record_as_text_is_one_line_whatever_its_words_are() -> None:
    """The reason of a failure is an agent's: it must look like no line of the log, and act on no terminal."""
    stream = io.StringIO()
    configure_logging(TEXT, stream)
    reason = "no space\n2026-01-01T00:00:00.000Z INFO berth.test it works\x1b[2J"
    logging.getLogger("berth.test").warning("build failed: %s", reason)
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()
    assert r"build failed: no space\n2026-01-01" in stream.getvalue()


def test_auto_is_json_without_a_terminal() -> None:
    stream = io.StringIO()
    configure_logging(Settings(), stream)
    logging.getLogger("berth.test").warning("hello")
    assert json.loads(stream.getvalue())["message"] == "hello"
