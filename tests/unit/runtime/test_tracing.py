"""Traces within one process: which spans there are, and what happens to them when the collector is away."""

import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.cli import main
from berth.runtime import otlp, tracing
from berth.runtime.tracing import TracePoint, parse_traceparent, request_span, span, span_each
from tests.collector import Collector, collecting, traced

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{PARENT}-01"
POINT = TracePoint(int(TRACE, 16), int(PARENT, 16), is_sampled=True)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


# -- traceparent --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (GIVEN, POINT),
        (f"00-{TRACE}-{PARENT}-00", POINT._replace(is_sampled=False)),
        (f"00-{TRACE}-{PARENT}-03", POINT),
        (f"00-{TRACE}-{PARENT}-02", POINT._replace(is_sampled=False)),
        # A version to come may say more; this one may not.
        (f"cc-{TRACE}-{PARENT}-01", POINT),
        (f"cc-{TRACE}-{PARENT}-01-what-the-future-will-be-like", POINT),
        (f"cc-{TRACE}-{PARENT}-01.what", None),
        (f"00-{TRACE}-{PARENT}-01-more", None),
        (f"ff-{TRACE}-{PARENT}-01", None),
        (f"00-{'0' * 32}-{PARENT}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{PARENT}-01", None),
        (f"00-{TRACE[1:]}-{PARENT}-01", None),
        (f"{GIVEN},{GIVEN}", None),
        (f"{GIVEN}\n", None),
        (f" {GIVEN}", None),
        ("", None),
        (None, None),
    ],
)
def test_a_traceparent_is_read_as_the_standard_says(given: str | None, read: TracePoint | None) -> None:
    assert parse_traceparent(given) == read


def test_what_is_written_is_read_again() -> None:
    assert str(POINT) == GIVEN
    for point in (POINT, TracePoint(1, 1, is_sampled=False)):
        assert parse_traceparent(str(point)) == point


# -- spans --------------------------------------------------------------------------------------


def test_while_it_is_off_there_is_one_span_that_does_nothing() -> None:
    assert not tracing.is_on()
    made = {span("a"), span("b", within=GIVEN), span_each("c", [POINT]), request_span(GIVEN)}
    assert len(made) == 1
    with request_span(GIVEN) as nothing:
        nothing.note({"a": 1})
        nothing.rename("b")
        nothing.fail("c")
        assert tracing.current_traceparent() is None
    assert tracing.look() == 0


def test_spans_are_below_each_other_and_end_with_their_errors(collector: Collector) -> None:
    with traced(collector):
        with request_span(GIVEN) as request:
            request.rename("GET /x")
            with span("inner", {"n": 1}) as inner:
                inner.fail("x" * 5000)
                passed_on = parse_traceparent(tracing.current_traceparent())
            with pytest.raises(ValueError, match="no"), span("raised"):
                raise ValueError("no")
            with pytest.raises(asyncio.CancelledError), span("cancelled"):
                raise asyncio.CancelledError
        assert tracing.current_traceparent() is None
        with span("elsewhere", within=str(passed_on)):
            pass
        with span("without a parent"):
            pass
    spans = {seen.name: seen for seen in collector.spans}
    assert {seen.trace for seen in spans.values()} == {TRACE}
    assert spans["GET /x"].parent == PARENT
    for name in ("inner", "raised", "cancelled"):
        assert spans[name].parent == spans["GET /x"].id
    assert spans["elsewhere"].parent == spans["inner"].id
    assert (spans["inner"].attributes, len(spans["inner"].error or "")) == ({"n": 1}, 1000)
    assert (spans["raised"].error, spans["raised"].attributes) == ("no", {"error.type": "ValueError"})
    assert (spans["cancelled"].error, spans["cancelled"].attributes) == (None, {"berth.cancelled": True})
    assert "without a parent" not in spans


def test_work_for_many_is_in_the_trace_of_each_that_is_kept(collector: Collector) -> None:
    others = [TracePoint(number, number, is_sampled=number != 2) for number in (1, 2, 3)]
    with traced(collector), span_each("append", [None, *others], {"n": 3}) as spans:
        spans.note({"m": 4})
        assert tracing.current_traceparent() is None
    assert sorted(int(seen.trace, 16) for seen in collector.spans) == [1, 3]
    assert all(seen.attributes == {"n": 3, "m": 4} for seen in collector.spans)


@pytest.mark.parametrize(("ratio", "kept"), [(0.0, 0), (1.0, 50)])
def test_a_share_of_the_requests_without_a_trace_begins_one(
    collector: Collector, ratio: float, kept: int
) -> None:
    passed_on = set()
    with traced(collector, ratio):
        for _ in range(50):
            with request_span(None):
                passed_on.add(tracing.current_traceparent())
                with span("inner"):
                    pass
        with request_span(GIVEN):
            pass
        with request_span(f"00-{TRACE}-{PARENT}-00"), span("unkept"):
            assert tracing.current_traceparent() == f"00-{TRACE}-{PARENT}-00"
    # Whoever is asked on behalf of one that is not kept learns that.
    assert len(passed_on) == 50
    assert {str(one)[-3:] for one in passed_on} == {"-01" if kept else "-00"}
    names = [seen.name for seen in collector.spans]
    assert (names.count("request"), names.count("inner"), names.count("unkept")) == (kept + 1, kept, 0)


def test_a_forked_copy_does_not_trace(collector: Collector) -> None:
    with traced(collector):
        pid = os.fork()
        if pid == 0:
            os._exit(tracing.is_on())
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert tracing.is_on()


# -- the collector ------------------------------------------------------------------------------


async def test_a_collector_that_refuses_is_lost_until_it_takes_spans(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    collector.behave("refuse")
    with traced(collector):
        await make_until(lambda: tracing.look() > 0)
        tracing.look()
        collector.behave("take")
        await make_until(lambda: collector.spans)
        await make_until(lambda: tracing.look() or len(caplog.messages) > 1)
    lost, back = caplog.messages
    assert lost.startswith(f"the trace collector {collector.url}: unreachable, spans are dropped: Failed to ")
    assert "code: 400" in lost
    assert back.startswith(f"the trace collector {collector.url}: takes spans again after ")


async def make_until(is_so: object) -> None:
    assert callable(is_so)
    async with asyncio.timeout(60):
        while not is_so():
            with request_span(None):
                await asyncio.sleep(0.05)


def test_a_collector_that_hangs_keeps_nobody_waiting_and_the_queue_is_bounded(
    collector: Collector, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "_FLUSH_S", 0.1)
    collector.behave("hang")
    beyond = 1000
    with traced(collector):
        for _ in range(otlp.QUEUE_MAX + beyond):
            with request_span(None):
                pass
        # The thread may have taken a first batch.
        dropped = tracing.look()
        assert beyond - otlp._BATCH_MAX <= dropped <= beyond
        assert tracing.look() == 0
    [text] = caplog.messages
    assert f"{otlp.QUEUE_MAX + beyond - dropped} spans were not sent before the stop: the collector" in text


def test_what_is_queued_is_sent_before_a_stop(collector: Collector) -> None:
    with traced(collector):
        for _ in range(1500):
            with request_span(None):
                pass
    assert len(collector.spans) == 1500


# -- what is refused ----------------------------------------------------------------------------

COMMANDS = {
    "serve": ["serve"],
    "region": ["region", "--cells", "cell1=sqlite:///cell1.db"],
    "cell": [
        "cell",
        "--name",
        "a",
        "--database",
        "sqlite:///a.db",
        "--placement",
        "http://h",
        "--listen",
        "127.0.0.1:1",
    ],
    "agent": ["agent", "--driver", "sim", "--data", "agents", "--conductor", "http://h"],
    "up": ["up"],
    "settings": ["settings"],
}


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*words, "--trace-endpoint", "http://127.0.0.1:4318"]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_traces_without_the_extra_are_refused_at_the_start(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "berth.runtime.otlp")
    monkeypatch.delattr("berth.runtime.otlp")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    told = refusal(COMMANDS[name], capsys)
    assert "trace" in told.splitlines()[-1]
    assert "it needs OpenTelemetry, which is not installed" in told
    assert "pip install 'berth[otel]', or leave the setting out" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        (
            {"OTEL_TRACES_SAMPLER": "always_off"},
            "the environment has OTEL_TRACES_SAMPLER, which Berth does not",
        ),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_BSP_X": "1"}, "has OTEL_BSP_X, OTEL_SDK_DISABLED, which"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, "the endpoint and the ratio are settings of Berth"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "colour"}, "Invalid key value resource attribute pair colour"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "a=b,the secret"}, "the environment's OTEL_ variables: Header"),
        ({"OTEL_EXPORTER_OTLP_COMPRESSION": "zip"}, "zip"),
    ],
)
def test_variables_of_opentelemetry_are_read_or_refused(
    variables: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    said = refusal(["serve"], capsys)
    assert told in said
    assert "secret" not in said


def test_variables_of_opentelemetry_say_what_the_collector_is_told(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "placement-of-rack-7")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=berth")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip")
    # The way to the collector is a setting of Berth.
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert tracing.find_obstacle(collector.url, os.environ) is None
    with traced(collector), request_span(None):
        pass
    assert [seen.service for seen in collector.spans] == ["placement-of-rack-7"]
    [headers] = collector.requests
    assert (headers["x-tenant"], headers["content-encoding"]) == ("berth", "gzip")


def test_without_an_endpoint_the_environment_is_not_looked_at() -> None:
    assert tracing.find_obstacle(None, {"OTEL_TRACES_SAMPLER": "always_off"}) is None
