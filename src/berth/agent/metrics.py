"""The metrics of an agent's process, and the small application that shows them."""

import os
from typing import Final, get_args

import msgspec
from prometheus_client import CollectorRegistry, PlatformCollector, generate_latest

from berth.api.kernel.health import METRICS_TYPE, MetricsPage
from berth.api.kernel.http import JSON, Receive, Response, Scope, Send, request_from_scope, send_response
from berth.runtime.metrics import Family, Metrics, WorkerProcesses
from berth.runtime.telemetry import SPANS_DROPPED, WORKER_PID
from berth.sagas.saga import Verb

_VERBS: Final = frozenset(get_args(Verb))

COMMAND_SECONDS: Final = Family(
    "berth_command_seconds",
    "Seconds of commands that a host has carried out, by what they do and how they ended (done, failed).",
    "histogram",
    ("verb", "outcome"),
    (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600),
)
COMMANDS_UNDER_WAY: Final = Family("berth_commands_under_way", "Commands that are carried out now.", "gauge")
HOSTS_REGISTERED: Final = Family(
    "berth_agent_hosts_registered", "Hosts of this process that their conductor knows.", "gauge"
)
CONDUCTOR_UP: Final = Family("berth_conductor_up", "Whether the conductor can be reached: 1 or 0.", "gauge")
CONDUCTOR_OUTAGES: Final = Family(
    "berth_conductor_outages", "How often the conductor could not be reached for some seconds.", "counter"
)
FAMILIES: Final = (
    COMMAND_SECONDS,
    COMMANDS_UNDER_WAY,
    HOSTS_REGISTERED,
    CONDUCTOR_UP,
    CONDUCTOR_OUTAGES,
    SPANS_DROPPED,
    WORKER_PID,
)


class AgentMetrics:
    def __init__(self) -> None:
        self._metrics = metrics = Metrics(FAMILIES)
        self._registry = CollectorRegistry()
        self._registry.register(metrics)
        self._registry.register(WorkerProcesses(lambda: metrics.read_each(WORKER_PID)))
        PlatformCollector(registry=self._registry)
        self._under_way = metrics.value(COMMANDS_UNDER_WAY)
        self._registered = metrics.value(HOSTS_REGISTERED)
        self._conductor = metrics.value(CONDUCTOR_UP)
        self._outages = metrics.value(CONDUCTOR_OUTAGES)
        self._spans_dropped = metrics.value(SPANS_DROPPED)
        self._conductor.set(1)
        metrics.value(WORKER_PID).set(os.getpid())

    def command_begun(self) -> None:
        self._under_way.add()

    def command_ended(self, verb: str, seconds: float, error: str | None) -> None:
        self._under_way.add(-1)
        # A newer conductor may know others.
        label = verb if verb in _VERBS else "other"
        outcome = "done" if error is None else "failed"
        self._metrics.distribution(COMMAND_SECONDS, label, outcome).add(seconds)

    def hosts_registered(self, count: int) -> None:
        self._registered.set(count)

    def noticed(self, is_there: bool) -> None:
        """The conductor was lost, or is back."""
        self._conductor.set(is_there)
        if not is_there:
            self._outages.add()

    def spans_dropped(self, count: int) -> None:
        self._spans_dropped.add(count)

    def exposition(self) -> bytes:
        return generate_latest(self._registry)


class MetricsApi:
    """An ASGI application with ``/metrics`` and ``/healthz``, for anybody who can reach it."""

    def __init__(self, metrics: AgentMetrics) -> None:
        self._page = MetricsPage(metrics.exposition)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = request_from_scope(scope)
        if request.path not in ("/metrics", "/healthz"):
            response = Response(404)
        elif request.method not in ("GET", "HEAD"):
            response = Response(405, headers=[("allow", "GET, HEAD")])
        elif request.path == "/metrics":
            response = Response(200, await self._page.render(), METRICS_TYPE)
        else:
            response = Response(200, msgspec.json.encode({"status": "alive"}), JSON)
        await send_response(send, response)
