"""The log lines and metrics of a process, all declared here.

Every request pays for both. Children of a metric are looked up once per combination of labels and
kept; an access line is one formatted string and one write, without the machinery of a log record, and
nothing at all when the level is above INFO. Labels are bounded: methods outside HTTP's own count as
"other", and a path is only ever a label as its route's template.
"""

import asyncio
import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, Protocol, TextIO

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from berth.runtime.clock import Clock
from berth.runtime.log_output import LogOutput
from berth.runtime.settings import Settings

ACCESS_LOGGER: Final = "berth.access"

_VERSION_HEADER: Final = "openstack-api-version"
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_ENCODER: Final = msgspec.json.Encoder()
_COMMANDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


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
    """The metrics of one process and its access log. Also the observer of the process's writer."""

    def __init__(self, settings: Settings, clock: Clock, stream: TextIO | None = None) -> None:
        self._access = _AccessLog(clock, stream or _log_stream(), settings.log_format)
        self._registry = CollectorRegistry()
        self._registry.register(_DroppedLines())
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        labels = ("method", "route", "status")
        self._requests = Counter(
            "berth_requests", "Number of requests answered.", labels, registry=self._registry
        )
        self._request_seconds = Histogram(
            "berth_request_seconds",
            "Time from the arrival of a request to its response, in seconds.",
            labels[:2],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._queue_depth = Gauge(
            "berth_queue_commands",
            "Number of writes waiting for the next journal append.",
            registry=self._registry,
        )
        self._batch_commands = Histogram(
            "berth_batch_commands",
            "Number of writes per journal append.",
            buckets=_COMMANDS,
            registry=self._registry,
        )
        self._append_seconds = Histogram(
            "berth_append_seconds",
            "Duration of a journal append, in seconds.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._journal_index = Gauge(
            "berth_journal_index",
            "Index of the last durable journal entry that this process knows.",
            registry=self._registry,
        )
        self._rejections = Counter(
            "berth_rejections",
            "Number of writes rejected, by kind of rejection.",
            ("kind",),
            registry=self._registry,
        )
        self._answered: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._rejected: dict[str, Counter] = {}

    # -- requests -------------------------------------------------------------------------------

    def request(self, request: SeenRequest, response: SeenResponse, route: str, seconds: float) -> None:
        """Count and log one exchange."""
        self.count(request.method, route, response.status, seconds)
        self._access.write(request, response, seconds)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one exchange without logging it: agents poll all the time."""
        key = (method, route, status)
        children = self._answered.get(key) or self._bind(key)
        children[0].inc()
        children[1].observe(seconds)

    def _bind(self, key: tuple[str, str, int]) -> tuple[Counter, Histogram]:
        method, route, status = key
        if method not in _METHODS:
            # The key is not kept: a client could otherwise fill the memory with methods of its own.
            return self._children("other", route, status)
        children = self._answered[key] = self._children(method, route, status)
        return children

    def _children(self, method: str, route: str, status: int) -> tuple[Counter, Histogram]:
        return (
            self._requests.labels(method, route, str(status)),
            self._request_seconds.labels(method, route),
        )

    # -- the writer -----------------------------------------------------------------------------

    def appended(self, index: int, commands: int, seconds: float) -> None:
        self._journal_index.set(index)
        self._batch_commands.observe(commands)
        self._append_seconds.observe(seconds)

    def queued(self, depth: int) -> None:
        self._queue_depth.set(depth)

    def rejected(self, kind: str) -> None:
        child = self._rejected.get(kind)
        if child is None:
            child = self._rejected[kind] = self._rejections.labels(kind)
        child.inc()

    def exposition(self) -> bytes:
        """All metrics of this process in Prometheus' text format."""
        return generate_latest(self._registry)


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

    def write(self, request: SeenRequest, response: SeenResponse, seconds: float) -> None:
        if not self._logger.isEnabledFor(logging.INFO):
            return
        self._lines.append(self._format(self._time(), request, response, seconds * 1000))
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


def _text_line(time: str, request: SeenRequest, response: SeenResponse, milliseconds: float) -> str:
    asked = f"{request.method} {_path(request)}"
    # A path arrives decoded. One with a line break in it must not look like two requests.
    if not asked.isprintable():
        asked = ascii(asked)[1:-1]
    return (
        f'{time} INFO {ACCESS_LOGGER} [{request.ids}] {request.client} "{asked}" '
        f"status: {response.status} len: {len(response.body)} microversion: {_microversion(response)} "
        f"ms: {milliseconds:.3f}\n"
    )


def _json_line(time: str, request: SeenRequest, response: SeenResponse, milliseconds: float) -> str:
    line = _AccessLine(
        time,
        "INFO",
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

    A record may carry a request's id: ``log.info("...", extra={"request_id": id})``. The id that the caller
    has given the request may follow behind a space.
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
    for name in ("httpx", "httpcore", "keystoneauth", "urllib3", "oslo_policy", "stevedore", "asyncio"):
        logging.getLogger(name).setLevel(quiet)


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


class _DroppedLines(Collector):
    def collect(self) -> Iterator[CounterMetricFamily]:
        output = _log_output()
        yield CounterMetricFamily(
            "berth_log_lines_dropped",
            "Number of log lines dropped because the log reader was too slow.",
            value=0 if output is None else output.dropped,
        )


def _is_json(log_format: str, stream: TextIO | LogOutput) -> bool:
    return log_format == "json" or (log_format == "auto" and not stream.isatty())


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
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
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        request_id = getattr(record, "request_id", None)
        about = f" [{request_id}]" if request_id is not None else ""
        text = f"{_record_time(record)} {record.levelname} {record.name}{about} {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _record_time(record: logging.LogRecord) -> str:
    text = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
