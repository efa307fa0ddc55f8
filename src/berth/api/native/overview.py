"""GET /berth/v1/overview: is everything well? One answer for the first look at a region.

It is asked every few seconds by everybody who looks. So what can be read off columns and indexes is made
anew each time, in some milliseconds at 10,000 hosts; what costs more is kept by each process
(``KeptOverview``) and made again after a while, one part at a time, while others are served:

| what | how old it may be |
| --- | --- |
| how many more of each flavor fit | ``_FITS_S``, and as long as it takes to count them |
| the last changes | not at all: only what is new is read |
| what the doctor finds | ``_DOCTOR_S``; it looks in a child process, and nobody waits for it |
"""

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Annotated, Final, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from berth.api.kernel.call import Services
from berth.api.kernel.http import Response
from berth.api.kernel.times import show_time, show_time_ns
from berth.api.native import event_kinds as wire
from berth.api.native.calls import NativeCall, NativeRoute, respond
from berth.api.native.cells import CellDetail, describe_cells
from berth.api.native.changes import Names, change_of, find_names, names_of
from berth.api.native.fields import JournalIndex, Time
from berth.api.native.hosts import Use, show_use
from berth.api.native.operations import is_overdue
from berth.doctor.findings import Finding, examine
from berth.engine import ASKER, Asker, Engine, Overloaded, Pruned, Unavailable
from berth.model.events import Batch, Entry
from berth.model.ids import Index, ProviderId
from berth.model.placement import CELL, HEALTHY, SHARES_VIA_AGGREGATE, ZONE
from berth.model.rejections import Rejection
from berth.model.scheduling import ANY_CELL, ScheduleRequest
from berth.model.servers import Action, Flavor, Host, Server
from berth.runtime.clock import Clock
from berth.sagas.hosts import status_of
from berth.sagas.requests import flavor_sizes
from berth.scheduler.capacity import count_fits
from berth.scheduler.flavors import read_flavor
from berth.scheduler.plugins import SchedulerOptions
from berth.view import View
from berth.view.capacity_sums import CapacitySum, sum_by_group

_log = logging.getLogger(__name__)

# -- answers ------------------------------------------------------------------------------------

WrongKind = Literal[
    "cell_unreachable",
    "conductor_silent",
    "host_down",
    "operation_overdue",
    "server_in_error",
    "host_complaining",
    "doctor",
]


class CapacityUse(msgspec.Struct):
    """Capacity and use in all, by the name of the cell, and by the name of the zone."""

    total: Use
    by_cell: dict[str, Use]
    by_zone: dict[str, Use]


class HostNumbers(msgspec.Struct):
    """``complaining``: hosts, in whatever state, part of whose agent's report could not be written."""

    up: int
    down: int
    disabled: int
    complaining: int


class FlavorFit(msgspec.Struct):
    """``fits``: how many more servers of the flavor fit; null if that was not counted, and ``text`` says why.
    ``exact`` false: at least so many."""

    id: str
    name: str
    fits: int | None
    exact: bool
    text: str | None


class Wrong(msgspec.Struct):
    """Something that is not as it should be. ``object`` is the uuid of a host, a server or what a finding is
    about, or the name of a cell."""

    kind: WrongKind
    object: str
    name: str | None
    text: str
    since: Time | None
    what_to_do: str


class LastChange(msgspec.Struct):
    """What one request changed: as in the event feed, with the first of its changes and their names."""

    index: JournalIndex
    at: Time
    request_id: str
    user: str | None
    project: str | None
    action: str
    changes: list[wire.Change]
    changes_total: int
    names: dict[str, str]


class OverviewDetail(msgspec.Struct):
    """``servers``: how many there are in each state. ``wrong``: some of each kind; ``wrong_total`` says how
    many there are."""

    index: JournalIndex
    at: Time
    capacity: CapacityUse
    hosts: HostNumbers
    servers: dict[str, int]
    servers_total: int
    flavors: list[FlavorFit]
    flavors_total: int
    flavors_counted_at: Time | None
    wrong: list[Wrong]
    wrong_total: Annotated[dict[str, int], Meta(description="How many there are of each kind.")]
    doctor_looked_at: Time | None
    last_changes: list[LastChange]


class OneOverview(msgspec.Struct):
    overview: OverviewDetail


# -- numbers ------------------------------------------------------------------------------------


def _sum_capacity(view: View) -> CapacityUse:
    everything = np.zeros(view.row_end, np.int64)
    [total] = sum_by_group(view, everything, 1)
    by_cell, by_zone = (
        {name: show_use(sums) for name, sums in sum_by_kind(view, kind).items()} for kind in (CELL, ZONE)
    )
    return CapacityUse(show_use(total), by_cell, by_zone)


def sum_by_kind(view: View, kind: str, rest: str | None = None) -> dict[str, dict[str, CapacitySum]]:
    """By the names of the aggregates of a kind that hosts are in; a host in several of them counts in one.
    ``rest``: the name for hosts and pools that are in none, if they are to count."""
    names: list[str] = [] if rest is None else [rest]
    groups: NDArray[np.int64] = np.full(view.row_end, len(names) - 1, np.int64)
    for number, id in enumerate(view.groups.of_kind(kind), len(names)):
        names.append(view.groups.labels[id].name or id)
        groups[view.rows_in_aggregate(id).rows()] = number
    sums = sum_by_group(view, groups[view.root_rows], len(names))
    return dict(sorted(zip(names, sums, strict=True), key=lambda pair: pair[0]))


def count_hosts(view: View) -> HostNumbers:
    hosts = view.roots()
    hosts[[row for row in view.rows_with_trait(SHARES_VIA_AGGREGATE) if view.is_pool(view.record(row))]] = (
        False
    )
    down, disabled = view.down.mask(view.row_end), view.disabled.mask(view.row_end)
    bare = [status_of(view, host) for host in _hosts_without_provider(view)]
    bare_down = sum(status.down for status in bare)
    return HostNumbers(
        int((hosts & ~down & ~disabled).sum()) + len(bare) - bare_down,
        int((hosts & down).sum()) + bare_down,
        int((hosts & disabled & ~down).sum()),
        view.records.count_found(Host, "complaining", ""),
    )


def _hosts_without_provider(view: View) -> list[Host]:
    return [host for host in view.records.all(Host) if ProviderId(host.id) not in view.providers]


def count_servers(view: View) -> dict[str, int]:
    states = sorted(view.records.keys(Server, "state"))
    return {state: view.records.count_found(Server, "state", state) for state in states}


# -- what is wrong ------------------------------------------------------------------------------

_SHOWN_MAX: Final = 20
"""How many of each kind are shown."""
_TEXT_MAX: Final = 300
_STEPS_PER_WRONG: Final = 2


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _TEXT_MAX else f"{line[: _TEXT_MAX - 3]}..."


class WrongThings:
    """What is wrong: some of each kind, and how many there are."""

    def __init__(self, view: View, call: NativeCall, findings: tuple[Finding, ...]) -> None:
        self.shown: list[Wrong] = []
        self.total: dict[str, int] = {}
        # Of these all are looked through for the some that are shown.
        looked_at = (
            view.records.count_found(Server, "state", "error")
            + view.records.count_found(Action, "state", "running")
            + view.records.count_found(Host, "complaining", "")
        )
        view.steps.take(_STEPS_PER_WRONG * looked_at)
        cells = describe_cells(view, call)
        away = [cell for cell in cells if cell.state in ("unreachable", "unconfigured")]
        self._add("cell_unreachable", map(_cell_unreachable, away), len(away))
        silent = [cell for cell in cells if cell.state == "silent"]
        self._add("conductor_silent", map(_conductor_silent, silent), len(silent))
        down = _list_down(view)
        self._add("host_down", (_host_down(view, name, id) for name, id in down), len(down))
        overdue = [
            one for one in view.records.find(Action, "state", "running") if is_overdue(one, call.now_s)
        ]
        longest = heapq.nsmallest(_SHOWN_MAX, overdue, key=lambda one: (one.progress.since_s, one.id))
        self._add("operation_overdue", (_overdue(view, one) for one in longest), len(overdue))
        failed = view.records.find(Server, "state", "error")
        newest = heapq.nlargest(_SHOWN_MAX, failed, key=lambda one: (one.updated_at_s, one.id))
        self._add("server_in_error", map(_server_in_error, newest), len(failed))
        complaining = view.records.find(Host, "complaining", "")
        first = heapq.nsmallest(_SHOWN_MAX, complaining, key=lambda host: host.name)
        self._add("host_complaining", map(_host_complaining, first), len(complaining))
        # Complaints are there already, and not as old.
        found = [finding for finding in findings if finding.kind != "host_complaint"]
        self._add("doctor", map(_doctor_finding, found), len(found))

    def _add(self, kind: WrongKind, found: Iterable[Wrong], total: int) -> None:
        if total:
            self.total[kind] = total
            self.shown += islice(found, _SHOWN_MAX)


def _cell_unreachable(cell: CellDetail) -> Wrong:
    return Wrong(
        "cell_unreachable",
        cell.name,
        cell.name,
        _first_line(f"{cell.text} {cell.database_text or ''}"),
        cell.since,
        "Check the database of the cell, and the setting cells. Orders wait, and go on by themselves.",
    )


def _conductor_silent(cell: CellDetail) -> Wrong:
    return Wrong(
        "conductor_silent",
        cell.name,
        cell.name,
        cell.text or "",
        cell.conductor_heard,
        "Start the conductor of the cell again, and read its log.",
    )


def _list_down(view: View) -> list[tuple[str, ProviderId]]:
    """The names and ids of hosts that are down, by name."""
    down = [(record.name, record.id) for record in map(view.record, view.down)]
    bare = [host for host in _hosts_without_provider(view) if status_of(view, host).down]
    return sorted(down + [(host.name, ProviderId(host.id)) for host in bare])


def _host_down(view: View, name: str, id: ProviderId) -> Wrong:
    agent = view.records.get(Host, id)
    servers = view.records.count_found(Server, "host", id)
    status = view.hosts.get(id, HEALTHY)
    is_forced = agent is not None and not agent.is_silent
    text = f"Host {name} was forced down" if is_forced else f"No heartbeat comes from host {name}"
    if status.disabled:
        text += f"; it is disabled: {status.reason or 'no reason was given'}"
    return Wrong(
        "host_down",
        id,
        name,
        _first_line(f"{text}; {servers} server{' is' if servers == 1 else 's are'} there."),
        show_time(agent.heard_at_s) if agent is not None and agent.heard_at_s else None,
        "Check the machine and its agent. If it does not come back, evacuate its servers.",
    )


def _overdue(view: View, action: Action) -> Wrong:
    server, at = view.records.get(Server, action.server), action.progress
    where = "in Placement" if at.host is None else f"on {at.host}"
    return Wrong(
        "operation_overdue",
        action.server,
        None if server is None else server.name,
        f"{action.name}: the step {at.step or 'at hand'} {where} should have ended ({action.request_id}).",
        show_time(at.since_s or action.updated_at_s),
        "Check the conductor of the cell and the agent of the host: their logs have the request id.",
    )


def _server_in_error(server: Server) -> Wrong:
    fault = server.fault
    return Wrong(
        "server_in_error",
        server.id,
        server.name,
        _first_line("No fault was recorded." if fault is None else fault.message),
        show_time(server.updated_at_s if fault is None else fault.at_s),
        "Ask why it would not fit now (explain), then rebuild, migrate or delete it.",
    )


def _host_complaining(host: Host) -> Wrong:
    more = len(host.complaints) - 1
    text = host.complaints[0] + (f" ({more} more)" if more else "")
    return Wrong(
        "host_complaining",
        host.id,
        host.name,
        _first_line(text),
        None,
        "The host is up. Change what its agent reports, or what stands against it in Placement.",
    )


def _doctor_finding(finding: Finding) -> Wrong:
    return Wrong(
        "doctor",
        finding.subject,
        None,
        _first_line(finding.sentence),
        None,
        _first_line(
            f"berth doctor repairs it: {finding.repair}."
            if finding.repair is not None
            else f"A human must decide: {finding.unsafe or 'see berth doctor'}."
        ),
    )


# -- what is kept -------------------------------------------------------------------------------

_FITS_S: Final = 10.0
_FITS_WITHIN_S: Final = 5.0
"""How long counting may take; flavors that are left then are not counted."""
FLAVORS_MAX: Final = 50
_DOCTOR_S: Final = 300.0
_FINDINGS_MAX: Final = 1_000
_IN_A_CHILD: Final = 1 << 40
"""More steps than any work may take while others wait."""
_CHANGES_MAX: Final = 20
_CHANGES_SHOWN: Final = 5
_BATCHES_MAX: Final = 32
_QUIET: Final = ("internal", "cell", "provider_version")
"""Changes that are no news to people."""
_OUTAGES: Final = (Unavailable, Overloaded)
_NOT_COUNTED: Final = "It was not counted: counting the others took too long."


class KeptOverview:
    """What a process keeps of its overview. Whoever asks shares one look."""

    def __init__(self, services: Services) -> None:
        engine, clock = services.engine, services.clock
        self.fits = FlavorFits(engine, services.scheduler, clock)
        self.changes = LastChanges(engine)
        self.doctor = DoctorLook(engine, clock)

    def stop(self) -> None:
        self.fits.stop()
        self.doctor.stop()


class _Kept:
    """Something that is made again when it is asked for and has become old, by one task for all."""

    def __init__(self, clock: Clock, lasts_s: float) -> None:
        self._clock = clock
        self._lasts_ns = int(lasts_s * 1e9)
        self._due_ns = 0
        self._task: asyncio.Task[None] | None = None
        self.made_at_s: int | None = None

    def look(self) -> asyncio.Task[None] | None:
        """The task that makes it again, started if it is due; None if it is new enough."""
        if self._task is None and self._clock.monotonic_ns() >= self._due_ns:
            self._task = asyncio.create_task(self._make_again(), name=type(self).__name__)
        return self._task

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _make_again(self) -> None:
        # It is made for everybody: it does not end with the one who asked first.
        ASKER.set(Asker(""))
        try:
            await self.make()
            self.made_at_s = self._clock.now_ns() // 1_000_000_000
        except _OUTAGES as outage:
            _log.debug("the overview keeps what it has: %s", outage)
        except Exception:
            _log.exception("a part of the overview could not be made")
        finally:
            self._due_ns = self._clock.monotonic_ns() + self._lasts_ns
            self._task = None

    async def make(self) -> None:
        raise NotImplementedError


class FlavorFits(_Kept):
    """How many more of each flavor fit, the first of them by name."""

    def __init__(self, engine: Engine, options: SchedulerOptions, clock: Clock) -> None:
        super().__init__(clock, _FITS_S)
        self._engine = engine
        self._options = options
        self.flavors: list[FlavorFit] = []
        self.total = 0

    async def make(self) -> None:
        end_ns = self._clock.monotonic_ns() + int(_FITS_WITHIN_S * 1e9)
        known = await self._engine.read(lambda view: list(view.records.all(Flavor)))
        counted: list[FlavorFit] = []
        for flavor in heapq.nsmallest(FLAVORS_MAX, known, key=lambda flavor: (flavor.name, flavor.id)):
            if self._clock.monotonic_ns() > end_ns:
                counted.append(FlavorFit(flavor.id, flavor.name, None, False, _NOT_COUNTED))
            else:
                counted.append(await self._engine.read(self._counting(flavor)))
        self.flavors, self.total = counted, len(known)

    def _counting(self, flavor: Flavor) -> Callable[[View], FlavorFit]:
        return lambda view: _count_flavor(view, flavor, self._options)


def _count_flavor(view: View, flavor: Flavor, options: SchedulerOptions) -> FlavorFit:
    needed = read_flavor(flavor_sizes(flavor), {}, devices=options.devices)
    if isinstance(needed, Rejection):
        return FlavorFit(flavor.id, flavor.name, None, False, "Its extra specs cannot be used.")
    request = ScheduleRequest(
        ask=needed.ask,
        otherwise=needed.otherwise,
        members=(),
        at_least=1,
        project="",
        user="",
        cell=ANY_CELL,
        metadata=needed.metadata,
        image=needed.image,
    )
    fits = count_fits(view, request, options)
    if isinstance(fits, Rejection):
        return FlavorFit(flavor.id, flavor.name, None, False, "It names what this region does not have.")
    return FlavorFit(flavor.id, flavor.name, fits.members, fits.exact, None)


class DoctorLook(_Kept):
    """What the doctor found when it last looked."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        super().__init__(clock, _DOCTOR_S)
        self._engine = engine
        self.findings: tuple[Finding, ...] = ()

    async def make(self) -> None:
        now_s = self._clock.now_ns() // 1_000_000_000

        def look(view: View) -> tuple[Finding, ...]:
            view.steps.take(_IN_A_CHILD)
            return examine(view, now_s)[:_FINDINGS_MAX]

        self.findings = await self._engine.read(look)


class LastChanges:
    """The newest changes that are news to people, newest first. Only what is new is read."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._at = Index(0)
        self._reading = asyncio.Lock()
        self.newest: deque[LastChange] = deque(maxlen=_CHANGES_MAX)

    async def read_up_to(self, index: Index, names: Names) -> list[LastChange]:
        async with self._reading:
            after = Index(max(self._at, index - _BATCHES_MAX))
            if after < index:
                for batch in await self._read(after):
                    self.newest.extendleft(_summarize(batch, names))
                    self._at = batch.index
        return list(self.newest)

    async def _read(self, after: Index) -> list[Batch]:
        try:
            return await self._engine.history(after, _BATCHES_MAX)
        except Pruned as too_old:
            return await self._engine.history(Index(too_old.oldest - 1), _BATCHES_MAX)


def _summarize(batch: Batch, names: Names) -> Iterator[LastChange]:
    for entry in batch.entries[-_CHANGES_MAX:]:
        changes = list(islice(_list_news(entry, names), _CHANGES_SHOWN))
        if changes:
            origin = entry.origin
            yield LastChange(
                batch.index,
                show_time_ns(batch.at_ns),
                origin.request_id,
                origin.user,
                origin.project,
                origin.action,
                changes,
                len(entry.events),
                find_names(changes, names),
            )


def _list_news(entry: Entry, names: Names) -> Iterator[wire.Change]:
    for event in entry.events[: 10 * _CHANGES_SHOWN]:
        change = change_of(event, names.classes)
        if change.__struct_config__.tag not in _QUIET:
            yield change


# -- the handler --------------------------------------------------------------------------------


async def show_overview(call: NativeCall) -> Response:
    kept = call.overview
    kept.doctor.look()
    counting = kept.fits.look()
    if counting is not None and kept.fits.made_at_s is None:
        # There is nothing yet to show meanwhile.
        await asyncio.wait((counting,))
    index, names = await call.read(lambda view: (view.index, names_of(view)))
    changes = await kept.changes.read_up_to(index, names)
    return respond(OneOverview(await call.read(lambda view: _describe(view, call, changes))))


def _describe(view: View, call: NativeCall, changes: list[LastChange]) -> OverviewDetail:
    fits, doctor = call.overview.fits, call.overview.doctor
    view.steps.take(view.row_end // 50 + view.records.count(Host) // 2)
    servers = count_servers(view)
    wrong = WrongThings(view, call, doctor.findings)
    return OverviewDetail(
        view.index,
        show_time(call.now_s),
        _sum_capacity(view),
        count_hosts(view),
        servers,
        sum(servers.values()),
        fits.flavors,
        fits.total,
        None if fits.made_at_s is None else show_time(fits.made_at_s),
        wrong.shown,
        wrong.total,
        None if doctor.made_at_s is None else show_time(doctor.made_at_s),
        changes,
    )


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/overview",
        show_overview,
        policy="berth:overview:show",
        name="show_overview",
        answer=OneOverview,
        is_tagged=False,
        summary="Is everything well?",
        description="Capacity and use, hosts and servers by state, how many more of each flavor fit, what is "
        "wrong and what to do about it, and the last changes. Cheap enough to be asked every few seconds: "
        "how many fit is counted every 10 seconds, and the doctor looks every 5 minutes.",
    ),
)
