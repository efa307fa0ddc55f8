"""A collector of traces: takes OTLP over HTTP as protobuf, as OpenTelemetry's own does, and keeps the spans.

taking <--(behave)--> refusing, hanging        up <--(start, stop)--> away
"""

import contextlib
import gzip
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from berth.runtime import tracing
from berth.runtime.otlp import OtlpRecorder
from tests.servers import HOST, free_port
from tests.waiting import WITHIN_S

Behaviour = Literal["take", "refuse", "hang"]

_HANG_S: Final = 60.0


class SeenSpan(NamedTuple):
    service: str
    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    error: str | None
    start_ns: int
    end_ns: int


class Collector:
    def __init__(self) -> None:
        self.port = free_port()
        self.behaviour: Behaviour = "take"
        self.requests: list[dict[str, str]] = []
        """The headers of all requests, also of those that were refused."""
        self._spans: list[SeenSpan] = []
        self._server: ThreadingHTTPServer | None = None
        self._released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                headers = {name.lower(): value for name, value in self.headers.items()}
                status = collector._take(self.path, headers, body)
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._released.clear()
        self._server = ThreadingHTTPServer((HOST, self.port), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Be away: connections are refused."""
        self._released.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def behave(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self._released.set()
        if behaviour == "hang":
            self._released.clear()

    def _take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        self.requests.append({**headers, ":path": path})
        if self.behaviour == "hang":
            self._released.wait(_HANG_S)
            return 503
        if self.behaviour == "refuse":
            return 400
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            about = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                self._spans += [_read(about["service.name"], span) for span in scope.spans]
        return 200

    @property
    def spans(self) -> list[SeenSpan]:
        return list(self._spans)

    def trace(self, id: str) -> list[SeenSpan]:
        return [span for span in self._spans if span.trace == id]

    def wait(self, is_there: Callable[[], object], what: str) -> None:
        """Wait until something has come."""
        deadline_s = time.monotonic() + WITHIN_S
        while not is_there():
            shown = "\n".join(f"{one.service}: {one.name} {one.id} in {one.parent}" for one in self.spans)
            assert time.monotonic() < deadline_s, f"{what}; there are\n{shown}"
            time.sleep(0.05)


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    collector.start()
    try:
        yield collector
    finally:
        collector.stop()


@contextlib.contextmanager
def traced(collector: Collector, ratio: float = 1.0) -> Iterator[None]:
    """Have spans of this process sent. In the end all of them are there."""
    tracing.begin(OtlpRecorder(collector.url, {"service.name": "test"}), ratio)
    try:
        yield
    finally:
        tracing.end()


def _read(service: str, span: Any) -> SeenSpan:
    attributes = {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}
    is_error = span.status.code == Status.StatusCode.STATUS_CODE_ERROR
    return SeenSpan(
        service,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        attributes,
        span.status.message if is_error else None,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
    )
