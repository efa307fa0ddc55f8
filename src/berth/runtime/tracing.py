"""Traces: what came of one request, in every process that had a part in it, as spans that are sent to a
collector.

    off --(begin)--> on: span ended -> bounded queue -> thread -> collector --(end)--> off

A span is a piece of work with a beginning, an end and a parent: the span that is current in the same task, or
one of another process. That one is named by a ``traceparent``, as W3C writes it down, which travels where the
id of the request travels: in the header of a request, in a saga run, in an agent command. Only a request to
an API may begin a trace; whatever else has no parent has no span.

While it is off, and for requests that are not sampled, ``span`` returns one object that does nothing. It is
off in a forked copy of a process, too. Nothing ever waits for the collector: spans that it does not take are
dropped and counted. OpenTelemetry is an extra. Only ``runtime.otlp`` imports it, and that is imported when
traces are asked for.
"""

import contextlib
import os
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Final, NamedTuple, Protocol

HEADER: Final = "traceparent"
_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z")
_SAMPLED: Final = 1

HONOURED: Final = frozenset(
    (
        "OTEL_SERVICE_NAME",
        "OTEL_RESOURCE_ATTRIBUTES",
        *(
            f"OTEL_EXPORTER_OTLP_{signal}{name}"
            for signal in ("", "TRACES_")
            for name in ("HEADERS", "CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY", "COMPRESSION")
        ),
    )
)
"""The variables of OpenTelemetry that are read: what the collector wants to see, and what is said of this
process. What else they could say is a setting, or fixed."""

Note = str | bool | int | float
Notes = Mapping[str, Note]


class TracePoint(NamedTuple):
    """A span in a trace, as others refer to it. ``is_sampled``: whether it and what is below it is kept."""

    trace_id: int
    span_id: int
    is_sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.is_sampled:02x}"


def parse_traceparent(text: str | None) -> TracePoint | None:
    """What a ``traceparent`` refers to; None if it is none. Of versions to come it is read as far as it has
    the form of this one."""
    found = None if text is None else _FORM.match(text)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    point = TracePoint(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED))
    is_known = version != "ff" and (version != "00" or more is None)
    return point if is_known and point.trace_id and point.span_id else None


CURRENT: Final[ContextVar[TracePoint | None]] = ContextVar("trace_point", default=None)
"""Of this task: what its work is part of."""


class TraceSpan:
    """A piece of work, from ``with`` to its end. Of this one nothing is kept."""

    __slots__ = ()

    def __enter__(self) -> "TraceSpan":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def rename(self, name: str) -> None:
        """Give it the name that was not known when it began."""

    def note(self, notes: Notes) -> None:
        """Say more about it."""

    def fail(self, why: str) -> None:
        """Say that it has failed. An exception that leaves it says the same."""


class _UnsampledSpan(TraceSpan):
    """A request whose trace is not kept. What it leads to, in other processes too, is not kept either."""

    __slots__ = ("_point", "_token")

    def __init__(self, point: TracePoint) -> None:
        self._point = point

    def __enter__(self) -> TraceSpan:
        self._token = CURRENT.set(self._point)
        return self

    def __exit__(self, *_: object) -> None:
        CURRENT.reset(self._token)


class _Spans(TraceSpan):
    """One piece of work in several traces."""

    __slots__ = ("_spans",)

    def __init__(self, spans: list[TraceSpan]) -> None:
        self._spans = spans

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for span in self._spans:
            span.__exit__(kind, error, trace)

    def note(self, notes: Notes) -> None:
        for span in self._spans:
            span.note(notes)


class Recorder(Protocol):
    """Who makes spans and sends them. ``dropped``: how many were not delivered since the start."""

    @property
    def dropped(self) -> int: ...

    def begin(
        self, name: str, parent: TracePoint | None, notes: Notes | None, *, is_request: bool
    ) -> TraceSpan: ...

    def look(self) -> None:
        """Log that the collector was lost, or is back."""

    def stop(self) -> None:
        """Send what is queued, within a deadline."""


_NO_SPAN: Final = TraceSpan()
_recorder: Recorder | None = None
_ratio = 1.0
_counted = 0


# -- spans --------------------------------------------------------------------------------------


def is_on() -> bool:
    return _recorder is not None


def span(name: str, notes: Notes | None = None, *, within: TracePoint | str | None = None) -> TraceSpan:
    """A span below ``within``, or else below the current one. Without either there is none."""
    if _recorder is None:
        return _NO_SPAN
    parent = (parse_traceparent(within) if isinstance(within, str) else within) or CURRENT.get()
    if parent is None or not parent.is_sampled:
        return _NO_SPAN
    return _recorder.begin(name, parent, notes, is_request=False)


def span_each(name: str, parents: Iterable[TracePoint | None], notes: Notes | None = None) -> TraceSpan:
    """A span below each of those parents, for work that is done for all of them at once."""
    if _recorder is None:
        return _NO_SPAN
    sampled = [parent for parent in parents if parent is not None and parent.is_sampled]
    return _Spans([_recorder.begin(name, parent, notes, is_request=False) for parent in sampled])


def request_span(traceparent: str | None) -> TraceSpan:
    """The span of a request to an API: below what its caller says, or the first of a trace. It is for the
    caller to say whether its trace is kept; of the others a share is."""
    if _recorder is None:
        return _NO_SPAN
    parent = parse_traceparent(traceparent)
    if parent is not None and not parent.is_sampled:
        return _UnsampledSpan(parent)
    if parent is None and random.random() >= _ratio:
        return _UnsampledSpan(TracePoint(random.getrandbits(128) or 1, random.getrandbits(64) or 1, False))
    return _recorder.begin("request", parent, None, is_request=True)


def current_traceparent() -> str | None:
    """What others need to know to go on with the current trace."""
    point = CURRENT.get()
    return None if point is None else str(point)


# -- on and off ---------------------------------------------------------------------------------


def find_obstacle(endpoint: str | None, environ: Mapping[str, str]) -> str | None:
    """Why spans cannot be sent from here, in words that end a sentence which begins with the setting; None if
    they can, or nobody wants that."""
    if endpoint is None:
        return None
    try:
        from berth.runtime import otlp
    except ImportError as missing:
        return (
            f"it needs OpenTelemetry, which is not installed ({missing}): "
            "pip install 'berth[otel]', or leave the setting out"
        )
    unread = sorted(name for name in environ if name.startswith("OTEL_") and name not in HONOURED)
    if unread:
        return (
            f"the environment has {', '.join(unread)}, which Berth does not read: unset it; the endpoint and "
            "the ratio are settings of Berth"
        )
    return otlp.find_wrong_variable(endpoint, environ)


@contextlib.contextmanager
def exporting(service: str, endpoint: str | None, about: Notes, ratio: float = 1.0) -> Iterator[None]:
    """Trace what this process does, if there is an endpoint; in the end send what is left, within a deadline.
    To be called in the process that works: after a fork. ``about`` is said of the process in every trace."""
    if endpoint is None:
        yield
        return
    # Where nothing is traced, it need not be there.
    from berth.runtime import otlp

    begin(otlp.OtlpRecorder(endpoint, {"service.name": service, **about}), ratio)
    try:
        yield
    finally:
        end()


def begin(recorder: Recorder, ratio: float = 1.0) -> None:
    """Have spans made. ``ratio``: of the requests that come without a trace, the share that begins one."""
    global _recorder, _ratio, _counted
    assert _recorder is None, "a process has one recorder"
    _recorder, _ratio, _counted = recorder, ratio, 0


def end() -> None:
    global _recorder
    recorder, _recorder = _recorder, None
    if recorder is not None:
        recorder.stop()


def look() -> int:
    """Log that the collector was lost or is back; how many spans were dropped since the last look. To be
    called now and then from the event loop."""
    global _counted
    if _recorder is None:
        return 0
    _recorder.look()
    before, _counted = _counted, _recorder.dropped
    return _counted - before


def _forget() -> None:
    global _recorder
    _recorder = None


os.register_at_fork(after_in_child=_forget)
