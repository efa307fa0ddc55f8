"""Spans by OpenTelemetry, and the way to a collector: OTLP over HTTP, as protobuf. The extra ``berth[otel]``
has what is imported here, and nothing else of Berth imports it.

    span ended -> queue --(gathered for a moment)--> batch -> collector: taken, or dropped and counted

A queue that is full drops what comes. A batch is tried for ``_DELIVERY_S``, again and again where that may
help; then it is dropped, and the collector is lost until one is taken. A process that stops waits
``_FLUSH_S`` for what is queued. The thread that sends does nothing else, and nothing waits for it.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextvars import Token
from types import TracebackType
from typing import Final

import requests
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider, sampling
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from berth import __version__
from berth.runtime import tracing
from berth.runtime.dependency import Dependency
from berth.runtime.ids import describe_process
from berth.runtime.settings import TRACES_PATH

QUEUE_MAX: Final = 4096
"""Spans that wait; of a create there are some 25, in all processes together."""
_BATCH_MAX: Final = 512
_GATHER_S: Final = 0.5
_DELIVERY_S: Final = 5.0
_FLUSH_S: Final = 2.0
_TEXT_MAX: Final = 1000
"""The length of a text in a span. The reason of a failure may be longer."""
_LIMITS: Final = SpanLimits(
    max_span_attributes=32,
    max_events=8,
    max_links=1,
    max_event_attributes=8,
    max_link_attributes=1,
    max_attribute_length=_TEXT_MAX,
    max_span_attribute_length=_TEXT_MAX,
)

_log = logging.getLogger(__name__)


class OtlpRecorder:
    """Makes spans and sends them. ``about`` is said of the process, unless the environment says otherwise."""

    def __init__(self, endpoint: str, about: tracing.Notes) -> None:
        self._complaints = _Complaints()
        self._exporter: SpanExporter = _make_exporter(endpoint)
        self._collector = Dependency(
            f"the trace collector {endpoint}",
            _log,
            lost_as="unreachable, spans are dropped",
            back_as="takes spans again",
        )
        provider = TracerProvider(
            sampler=sampling.ALWAYS_ON,
            resource=_make_resource(about),
            span_limits=_LIMITS,
            shutdown_on_exit=False,
        )
        self._tracer = provider.get_tracer("berth", __version__)
        self._queue: deque[ReadableSpan] = deque()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        # Each is counted by one thread: that of the event loop, and the one that sends.
        self._overflowed = 0
        self._undelivered = 0
        self._in_hand = 0
        self._failure: str | None = None

    @property
    def dropped(self) -> int:
        return self._overflowed + self._undelivered

    def begin(
        self, name: str, parent: tracing.TracePoint | None, notes: tracing.Notes | None, *, is_request: bool
    ) -> "RecordedSpan":
        context = None if parent is None else trace.set_span_in_context(NonRecordingSpan(_refer_to(parent)))
        kind = SpanKind.SERVER if is_request else SpanKind.INTERNAL
        return RecordedSpan(self, self._tracer.start_span(name, context, kind, notes))

    def take(self, span: trace.Span) -> None:
        """Have a span sent that has ended."""
        assert isinstance(span, ReadableSpan), "all are sampled"
        if len(self._queue) >= QUEUE_MAX:
            self._overflowed += 1
            return
        self._queue.append(span)
        if self._thread is None:
            self._thread = threading.Thread(target=self._send_forever, name="spans", daemon=True)
            self._thread.start()
        self._wake.set()

    def look(self) -> None:
        """Log that the collector was lost, or is back."""
        failure = self._failure
        if failure is None:
            self._collector.regain()
        else:
            self._collector.lose(failure, level=logging.WARNING)

    def stop(self) -> None:
        """Send what is queued, within a deadline."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_FLUSH_S)
        if left := len(self._queue) + self._in_hand:
            why = self._failure or f"the collector took longer than {_FLUSH_S:g} s"
            _log.warning("%d spans were not sent before the stop: %s", left, why)
        self._exporter.shutdown()
        self._complaints.close()

    # -- the thread -----------------------------------------------------------------------------

    def _send_forever(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            # What ends together is sent together.
            self._stopping.wait(_GATHER_S)
            while self._queue:
                self._send([self._queue.popleft() for _ in range(min(_BATCH_MAX, len(self._queue)))])
            if self._stopping.is_set():
                return

    def _send(self, batch: Sequence[ReadableSpan]) -> None:
        self._complaints.clear()
        self._in_hand = len(batch)
        try:
            is_taken = self._exporter.export(batch) is SpanExportResult.SUCCESS
        except Exception as error:
            is_taken = False
            self._complaints.add(str(error))
        if is_taken:
            self._failure = None
        else:
            self._undelivered += len(batch)
            self._failure = self._complaints.first or "the spans were refused"
        self._in_hand = 0


class RecordedSpan(tracing.TraceSpan):
    """A span of OpenTelemetry. It is the current one of its task while that is within it."""

    __slots__ = ("_recorder", "_span", "_token")

    def __init__(self, recorder: OtlpRecorder, span: trace.Span) -> None:
        self._recorder = recorder
        self._span = span
        self._token: Token[tracing.TracePoint | None] | None = None

    def __enter__(self) -> "RecordedSpan":
        context = self._span.get_span_context()
        point = tracing.TracePoint(context.trace_id, context.span_id, is_sampled=True)
        self._token = tracing.CURRENT.set(point)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            tracing.CURRENT.reset(self._token)
        if isinstance(error, asyncio.CancelledError):
            self.note({"berth.cancelled": True})
        elif error is not None:
            self.note({"error.type": type(error).__name__})
            self.fail(str(error))
        self._span.end()
        self._recorder.take(self._span)

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def note(self, notes: tracing.Notes) -> None:
        self._span.set_attributes(notes)

    def fail(self, why: str) -> None:
        self._span.set_status(Status(StatusCode.ERROR, why[:_TEXT_MAX]))


class _Complaints(logging.Handler):
    """What OpenTelemetry says is wrong, in place of its own lines in the log: it repeats them for every
    batch."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first: str | None = None
        self._logger = logging.getLogger("opentelemetry")
        self._logger.addHandler(self)
        self._logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.add(record.getMessage())

    def add(self, text: str) -> None:
        # The first is the cause; what follows is that it was given up.
        self.first = self.first or text[:_TEXT_MAX]

    def clear(self) -> None:
        self.first = None

    def close(self) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = True
        super().close()


def find_wrong_variable(endpoint: str, environ: Mapping[str, str]) -> str | None:
    """What is wrong with the variables of OpenTelemetry, as it says itself; None if they can be used."""
    complaints = _Complaints()
    try:
        _make_resource({})
        _make_exporter(endpoint)
    except ValueError as error:
        complaints.add(str(error))
    finally:
        complaints.close()
    if complaints.first is None:
        return None
    return f"the environment's OTEL_ variables: {_redact(complaints.first, environ)}"


def _redact(text: str, environ: Mapping[str, str]) -> str:
    """A text without the headers that the collector is to see: they are mostly tokens."""
    for name, value in environ.items():
        if name.startswith("OTEL_") and name.endswith("_HEADERS"):
            for header in filter(None, value.split(",")):
                text = text.replace(header.strip(), "***")
    return text


def _make_exporter(endpoint: str) -> OTLPSpanExporter:
    session = requests.Session()
    # The way to the collector is in the settings alone.
    session.trust_env = False
    return OTLPSpanExporter(f"{endpoint}{TRACES_PATH}", timeout=_DELIVERY_S, session=session)


def _make_resource(about: tracing.Notes) -> Resource:
    said = {"service.version": __version__, "service.instance.id": describe_process(), **about}
    return Resource.create(said).merge(OTELResourceDetector().detect())


def _refer_to(point: tracing.TracePoint) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if point.is_sampled else TraceFlags.DEFAULT)
    return SpanContext(point.trace_id, point.span_id, is_remote=True, trace_flags=flags)
