"""The log lines and metrics of a process.

Every request pays for both. The numbers of a metric are looked up once per combination of labels and
kept; an access line is one formatted string and one write, without the machinery of a log record, and
nothing at all when the level is above INFO. Labels are bounded: methods outside HTTP's own count as
"other", and a path is only ever a label as its route's template.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol, TextIO, get_args

import msgspec
from prometheus_client import CollectorRegistry, PlatformCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from berth.runtime import tracing
from berth.runtime.clock import Clock
from berth.runtime.log_output import LogOutput
from berth.runtime.metrics import (
    Distribution,
    Family,
    Metrics,
    MetricsMemory,
    Value,
    WorkerProcesses,
    show_gauge,
)
from berth.runtime.settings import Settings

ACCESS_LOGGER: Final = "berth.access"

_VERSION_HEADER: Final = "openstack-api-version"
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_ENCODER: Final = msgspec.json.Encoder()
_COMMANDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


# -- what is counted ----------------------------------------------------------------------------

_ROUTE: Final = ("method", "route")
_OPERATION_SECONDS: Final = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)

REQUESTS: Final = Family("berth_requests", "Requests answered.", "counter", (*_ROUTE, "status"))
REQUEST_SECONDS: Final = Family(
    "berth_request_seconds", "Seconds from a request to its response.", "histogram", _ROUTE, _SECONDS
)
QUEUE: Final = Family("berth_queue_commands", "Writes that wait for the next journal append.", "gauge")
BATCH_COMMANDS: Final = Family(
    "berth_batch_commands", "Writes per journal append.", "histogram", (), _COMMANDS
)
APPEND_SECONDS: Final = Family(
    "berth_append_seconds", "Seconds of a journal append.", "histogram", (), _SECONDS
)
APPEND_CONFLICTS: Final = Family(
    "berth_append_conflicts", "Journal appends that were repeated: another process was first.", "counter"
)
JOURNAL_INDEX: Final = Family(
    "berth_journal_index", "Index of the last journal entry that this server knows.", "gauge", merge="max"
)
REJECTIONS: Final = Family("berth_rejections", "Writes refused, by reason.", "counter", ("kind",))
OUTAGES: Final = Family(
    "berth_database_outages", "How often a worker has lost the database, or it has refused writes.", "counter"
)
DATABASE_UP: Final = Family(
    "berth_database_up", "Whether a worker can use the database: 1 or 0.", "gauge", merge="each"
)
STREAMS: Final = Family("berth_event_streams", "Open streams of events.", "gauge")
TOKENS: Final = Family(
    "berth_token_validations", "Tokens judged: valid, invalid, or not to be judged.", "counter", ("outcome",)
)
LINES_DROPPED: Final = Family(
    "berth_log_lines_dropped", "Log lines dropped because the reader of the log was too slow.", "counter"
)
SPANS_DROPPED: Final = Family(
    "berth_spans_dropped", "Spans dropped because the trace collector was away or too slow.", "counter"
)
WORKER_STARTS: Final = Family("berth_worker_starts", "Starts of a worker.", "counter", merge="each")
WORKER_PID: Final = Family("berth_worker_pid", "Process id of a worker.", "gauge", merge="each")
WORKER_HEARTBEAT: Final = Family(
    "berth_worker_heartbeat_timestamp_seconds",
    "When the event loop of a worker was last at work, in seconds since 1970.",
    "gauge",
    merge="each",
)
WORKER_INDEX: Final = Family(
    "berth_worker_index", "Index of the last journal entry that a worker has read.", "gauge", merge="each"
)
OPERATION_SECONDS: Final = Family(
    "berth_operation_seconds",
    "Seconds of operations that have ended, by what they do and how they ended (done, failed).",
    "histogram",
    ("operation", "outcome"),
    _OPERATION_SECONDS,
)
STEP_FAILURES: Final = Family(
    "berth_step_failures", "Steps of operations that failed.", "counter", ("operation", "step")
)
SNAPSHOT_INDEX: Final = Family(
    "berth_snapshot_index", "Journal index of the newest snapshot.", "gauge", merge="max"
)
SNAPSHOT_TIMESTAMP: Final = Family(
    "berth_snapshot_timestamp_seconds",
    "When the newest snapshot was taken, in seconds since 1970.",
    "gauge",
    merge="max",
)
COMMON: Final = (
    REQUESTS,
    REQUEST_SECONDS,
    QUEUE,
    BATCH_COMMANDS,
    APPEND_SECONDS,
    APPEND_CONFLICTS,
    JOURNAL_INDEX,
    REJECTIONS,
    OUTAGES,
    DATABASE_UP,
    LINES_DROPPED,
    SPANS_DROPPED,
    WORKER_STARTS,
    WORKER_PID,
    WORKER_HEARTBEAT,
    WORKER_INDEX,
    OPERATION_SECONDS,
    STEP_FAILURES,
    SNAPSHOT_INDEX,
    SNAPSHOT_TIMESTAMP,
)
REGION: Final = (*COMMON, STREAMS, TOKENS)
CELL: Final = COMMON
"""What a region and a cell count."""

WORKER_LAG: Final = Family(
    "berth_worker_lag_entries", "Journal entries that a worker has yet to read.", "gauge", ("worker",)
)

Figures = dict[Family, dict[tuple[str, ...], float]]
"""Gauges that are looked at when they are asked for, by their labels."""

TokenOutcome = Literal["valid", "invalid", "unavailable"]
_TOKEN_OUTCOMES: Final[tuple[TokenOutcome, ...]] = get_args(TokenOutcome)


class SeenRequest(Protocol):
    """What telemetry reads of a request."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def query_string(self) -> str: ...
    @property
    def request_id(self) -> str: ...
    @property
    def global_id(self) -> str | None: ...
    @property
    def ids(self) -> str: ...
    @property
    def client(self) -> str: ...


class SeenResponse(Protocol):
    """What telemetry reads of a response."""

    @property
    def status(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    @property
    def headers(self) -> list[tuple[str, str]]: ...


class Telemetry:
    """The metrics of one process and its access log. Also the observer of the process's writer. ``families``:
    what this kind of process counts; ``memory``: that of all workers, of which this is the ``number``-th."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        stream: TextIO | None = None,
        *,
        families: Sequence[Family] = REGION,
        memory: MetricsMemory | None = None,
        number: int = 1,
    ) -> None:
        self._access = _AccessLog(clock, stream or _log_stream(), settings.log_format)
        self._clock = clock
        self._metrics = metrics = Metrics(families, memory, number)
        self._figures: Figures = {}
        self._registry = CollectorRegistry()
        self._registry.register(self._metrics)
        self._registry.register(WorkerProcesses(lambda: metrics.read_each(WORKER_PID)))
        self._registry.register(_FigureCollector(self))
        PlatformCollector(registry=self._registry)
        self._queue = metrics.value(QUEUE)
        self._batch_commands = metrics.distribution(BATCH_COMMANDS)
        self._append_seconds = metrics.distribution(APPEND_SECONDS)
        self._append_conflicts = metrics.value(APPEND_CONFLICTS)
        self._journal_index = metrics.value(JOURNAL_INDEX)
        self._outages = metrics.value(OUTAGES)
        self._is_up = metrics.value(DATABASE_UP)
        self._streams = metrics.value(STREAMS)
        self._dropped = metrics.value(LINES_DROPPED)
        self._dropped_before = 0
        self._spans_dropped = metrics.value(SPANS_DROPPED)
        self._heartbeat = metrics.value(WORKER_HEARTBEAT)
        self._index = metrics.value(WORKER_INDEX)
        self._answered: dict[tuple[str, str, int], tuple[Value, Distribution]] = {}
        self._rejected: dict[str, Value] = {}
        self._validated = {outcome: metrics.value(TOKENS, outcome) for outcome in _TOKEN_OUTCOMES}
        metrics.value(WORKER_STARTS).add()
        metrics.value(WORKER_PID).set(os.getpid())
        self._is_up.set(1)

    # -- requests -------------------------------------------------------------------------------

    def request(
        self,
        request: SeenRequest,
        response: SeenResponse,
        route: str,
        seconds: float,
        level: int = logging.INFO,
    ) -> None:
        """Count and log one exchange; probes of health, which come every second, at level DEBUG."""
        self.count(request.method, route, response.status, seconds)
        self._access.write(request, response, seconds, level)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one exchange without logging it: agents poll all the time."""
        key = (method, route, status)
        children = self._answered.get(key) or self._bind(key)
        children[0].add()
        children[1].add(seconds)

    def _bind(self, key: tuple[str, str, int]) -> tuple[Value, Distribution]:
        method, route, status = key
        if method not in _METHODS:
            # The key is not kept: a client could otherwise fill the memory with methods of its own.
            return self._children("other", route, status)
        children = self._answered[key] = self._children(method, route, status)
        return children

    def _children(self, method: str, route: str, status: int) -> tuple[Value, Distribution]:
        return (
            self._metrics.value(REQUESTS, method, route, str(status)),
            self._metrics.distribution(REQUEST_SECONDS, method, route),
        )

    def stream_begun(self) -> None:
        self._streams.add(1)

    def stream_ended(self) -> None:
        self._streams.add(-1)

    def token_validated(self, outcome: TokenOutcome) -> None:
        self._validated[outcome].add()

    # -- the writer -----------------------------------------------------------------------------

    def appended(self, index: int, commands: int, seconds: float) -> None:
        self._journal_index.set(index)
        self._index.set(index)
        self._batch_commands.add(commands)
        self._append_seconds.add(seconds)

    def queued(self, depth: int) -> None:
        self._queue.set(depth)

    def rejected(self, kind: str) -> None:
        child = self._rejected.get(kind)
        if child is None:
            child = self._rejected[kind] = self._metrics.value(REJECTIONS, kind)
        child.add()

    def conflicted(self) -> None:
        self._append_conflicts.add()

    def noticed(self, is_there: bool) -> None:
        self._is_up.set(is_there)
        if not is_there:
            self._outages.add()

    # -- operations -----------------------------------------------------------------------------

    def expect_operations(self, names: Iterable[str]) -> None:
        """Show operations that have not ended yet with zero: Prometheus sees no increase from nothing to
        one."""
        for name in names:
            for outcome in ("done", "failed"):
                self._metrics.distribution(OPERATION_SECONDS, name, outcome)

    def step_failed(self, operation: str, step: str) -> None:
        self._metrics.value(STEP_FAILURES, operation, step).add()

    def operation_ended(self, operation: str, outcome: str, seconds: float) -> None:
        self._metrics.distribution(OPERATION_SECONDS, operation, outcome).add(seconds)

    # -- what is looked at ----------------------------------------------------------------------

    def beat(self, index: int, *, is_database_up: bool) -> None:
        """Say that this worker is at work, and how far it has read: about once a second, from its loop."""
        self._heartbeat.set(self._clock.now_ns() / 1e9)
        self._is_up.set(is_database_up)
        self._index.set(index)
        self._journal_index.set(index)
        self._count_dropped()
        self._spans_dropped.add(tracing.look())

    def look(self, figures: Figures) -> None:
        """What was found by looking, and not counted: it is shown until there is a later look."""
        self._figures = figures

    def set_snapshot(self, index: int, at_s: float) -> None:
        """The newest snapshot, as this worker has found it."""
        self._metrics.value(SNAPSHOT_INDEX).set(index)
        self._metrics.value(SNAPSHOT_TIMESTAMP).set(at_s)

    def _count_dropped(self) -> None:
        output = _log_output()
        dropped = 0 if output is None else output.dropped
        self._dropped.add(dropped - self._dropped_before)
        self._dropped_before = dropped

    def find_figures(self) -> Figures:
        """What was looked at, and how far each worker is behind the first of them."""
        read = self._metrics.read_each(WORKER_INDEX)
        newest = max(read.values(), default=0)
        lags: dict[tuple[str, ...], float] = {
            (str(number),): newest - index for number, index in read.items()
        }
        return {**self._figures, WORKER_LAG: lags}

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format: those of all workers."""
        self._count_dropped()
        return generate_latest(self._registry)


class _FigureCollector(Collector):
    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def collect(self) -> Iterator[Metric]:
        for family, values in self._telemetry.find_figures().items():
            yield show_gauge(family, values)


# -- lines --------------------------------------------------------------------------------------


class _AccessLine(msgspec.Struct, omit_defaults=True):
    time: str
    level: str
    logger: str
    request_id: str
    client: str
    method: str
    path: str
    status: int
    length: int
    microversion: str
    milliseconds: float
    global_request_id: str | None = None


class _AccessLog:
    """One line per request. Lines of requests that are answered together go to the stream together, before
    the event loop waits again: a write each would cost as much as a small answer."""

    def __init__(self, clock: Clock, stream: TextIO | LogOutput, log_format: str) -> None:
        self._clock = clock
        self._stream = stream
        self._logger = logging.getLogger(ACCESS_LOGGER)
        self._format = _json_line if _is_json(log_format, stream) else _text_line
        self._second = -1
        self._second_text = ""
        self._lines: list[str] = []

    def write(
        self, request: SeenRequest, response: SeenResponse, seconds: float, level: int = logging.INFO
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        name = logging.getLevelName(level)
        self._lines.append(self._format(self._time(), name, request, response, seconds * 1000))
        if len(self._lines) == 1:
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        text = "".join(self._lines)
        self._lines.clear()
        self._stream.write(text)
        self._stream.flush()

    def _time(self) -> str:
        second, rest_ns = divmod(self._clock.now_ns(), 1_000_000_000)
        if second != self._second:
            self._second = second
            self._second_text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._second_text}.{rest_ns // 1_000_000:03}Z"


def _microversion(response: SeenResponse) -> str:
    for name, value in response.headers:
        if name == _VERSION_HEADER:
            return value.rpartition(" ")[2]
    return "-"


def _path(request: SeenRequest) -> str:
    return f"{request.path}?{request.query_string}" if request.query_string else request.path


def _text_line(
    time: str, level: str, request: SeenRequest, response: SeenResponse, milliseconds: float
) -> str:
    asked = f"{request.method} {_path(request)}"
    # A path arrives decoded.
    return (
        f'{time} {level} {ACCESS_LOGGER} [{request.ids}] {request.client} "{_escape(asked)}" '
        f"status: {response.status} len: {len(response.body)} microversion: {_microversion(response)} "
        f"ms: {milliseconds:.3f}\n"
    )


def _escape(text: str) -> str:
    """A text that is one line, and acts on no terminal. A client's path or an agent's reason must not look
    like a line of the log."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _json_line(
    time: str, level: str, request: SeenRequest, response: SeenResponse, milliseconds: float
) -> str:
    line = _AccessLine(
        time,
        level,
        ACCESS_LOGGER,
        request.request_id,
        request.client,
        request.method,
        _path(request),
        response.status,
        len(response.body),
        _microversion(response),
        round(milliseconds, 3),
        request.global_id,
    )
    return _ENCODER.encode(line).decode() + "\n"


# -- records ------------------------------------------------------------------------------------


def configure_logging(settings: Settings, stream: TextIO | None = None) -> None:
    """Send this process's log records to the stream, in the format and from the level that is set.

    A record may say what it is about: ``log.info("...", extra={"request_id": id, "server": uuid})``, and so
    on for the fields of ``_FIELDS``. The id that the caller has given the request may follow the request's
    behind a space. Lines of text have the request's id alone: the rest is in their words.
    """
    stream = stream or sys.stderr
    formatter = _JsonFormatter() if _is_json(settings.log_format, stream) else _TextFormatter()
    handler = _handler(stream, formatter)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    for replaced in root.handlers:
        if isinstance(replaced, _OutputHandler):
            replaced.close()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    # Libraries that log every step log warnings only, unless the level is debug.
    quiet = logging.DEBUG if settings.log_level == "debug" else logging.WARNING
    for name in ("httpx", "keystoneauth", "urllib3", "oslo_policy", "stevedore", "asyncio"):
        logging.getLogger(name).setLevel(quiet)
    # These write headers and bodies down as they are, and with them tokens.
    for name in ("httpcore", "keystoneauth.session", "keystoneauth.identity"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _handler(stream: TextIO, formatter: logging.Formatter) -> logging.Handler:
    """A handler that drops lines instead of blocking the process, if the stream is a file."""

    def notice(dropped: int) -> str:
        text = "%d log lines were dropped before this one: the log reader was too slow"
        record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, (dropped,), None)
        return formatter.format(record) + "\n"

    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return logging.StreamHandler(stream)
    return _OutputHandler(LogOutput(descriptor, notice))


class _OutputHandler(logging.Handler):
    """Writes records to an output, and waits a bounded time for it when logging ends."""

    def __init__(self, output: LogOutput) -> None:
        super().__init__()
        self.output = output

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.output.write(self.format(record) + "\n")
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        self.output.close()
        super().close()


def _log_output() -> LogOutput | None:
    """The output of this process's log records, if it has one."""
    handlers = logging.getLogger().handlers
    return next((handler.output for handler in handlers if isinstance(handler, _OutputHandler)), None)


def _log_stream() -> TextIO | LogOutput:
    return _log_output() or sys.stderr


def _is_json(log_format: str, stream: TextIO | LogOutput) -> bool:
    return log_format == "json" or (log_format == "auto" and not stream.isatty())


_FIELDS: Final = ("server", "host", "cell", "seconds")
"""What a record is about, beside its request."""


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _record_time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        request_id = getattr(record, "request_id", None)
        if request_id is not None:
            line["request_id"], _, global_id = request_id.partition(" ")
            if global_id:
                line["global_request_id"] = global_id
        for name in _FIELDS:
            value = getattr(record, name, None)
            if value is not None:
                line[name] = round(value, 3) if isinstance(value, float) else value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        request_id = getattr(record, "request_id", None)
        about = f" [{request_id}]" if request_id is not None else ""
        message = _escape(record.getMessage())
        text = f"{_record_time(record)} {record.levelname} {record.name}{about} {message}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _record_time(record: logging.LogRecord) -> str:
    text = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
