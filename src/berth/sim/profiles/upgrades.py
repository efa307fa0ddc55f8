"""A cloud that was left by an older release, with sagas under way, and is started by this one, with agents of
three releases beside each other. Then users do what they do in the profile of the lifecycle.

No release is out whose bytes could be played. So the older forms are made of what this one writes, when the
cloud has been used for a while and everything in it is stopped:

* databases of schema 1: no checksums, no anchor, the old name of the column, with a snapshot and without what
  is before it;
* plain bodies of rows, in which records have none of the fields that have a default: whichever of them an
  older release did not know, it has not written. Tags and names of fields are those of the golden files;
* every third host was registered in version 1 of the agent protocol. Its agent sends no version, no
  credential and no field that version 1 did not have; and as version 1 did, it refuses a field that it does
  not know.

Every third host has an agent of a release to come, which says more than anybody understands, and is told more
than it understands.

The upgrade of one database after the other is finished while all of this goes on, and of all at rest: their
journals go from format 1 to this release's.

At rest all agents are upgraded. What holds at rest is what holds in the other profiles, and all databases are
sound.
"""

import asyncio
import contextlib
import functools
import random
from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec
import sqlalchemy as sa

from berth.cell import protocol
from berth.cell.conductor import Deadlines
from berth.client import Client, WireAnswer, WireRequest
from berth.engine.snapshots import apply_batch, problems
from berth.journal import JournalError
from berth.journal.snapshots import Snapshots
from berth.model.events import AnyRecord, Batch, Entry, Event, Origin, RecordChanged
from berth.model.formats import FORMAT
from berth.model.ids import Index
from berth.model.saga_runs import Agent
from berth.sim.audit import FINISHED
from berth.sim.cloud import HostPart, SimCloud
from berth.sim.database import Database
from berth.sim.nemesis import FAULTS
from berth.sim.network import SimTransport
from berth.sim.profiles.lifecycle import (
    OPERATIONS,
    LifecycleProfile,
    create,
)
from berth.sim.rest import check_disks, check_doctor, come_to_rest
from berth.sim.simulation import Act, Simulation
from berth.sim.world import Process
from berth.view import View
from berth.view.snapshot import dump

_HOSTS: Final = 9
_TOKEN: Final = "join-token-of-the-cells"
_SERVERS: Final = 12

Release = Literal["before", "current", "to come"]
_RELEASES: Final[tuple[Release, ...]] = ("before", "current", "to come")
_HEADERS_SINCE: Final = (protocol.VERSION_HEADER, protocol.CREDENTIAL_HEADER)
_REQUESTS: Final[dict[str, set[str]]] = {
    protocol.REGISTER: {"host", "name", "driver", "providers", "aggregates", "servers"},
    protocol.POLL: {"host", "servers", "busy", "wait_seconds"},
    protocol.REPORT: {"host", "order", "error"},
}
"""What version 1 of the protocol sends."""
_ANSWERS: Final[dict[str, set[str]]] = {
    protocol.REGISTER: {"cell", "silence_seconds"},
    protocol.POLL: {"orders", "aborts", "strays"},
    protocol.REPORT: {"awaited"},
}
"""What version 1 of the protocol understands."""
_PARTS: Final[dict[str, set[str]]] = {
    "orders": {"id", "fence", "verb", "server", "spec", "runs", "to_host"},
    "strays": {"server", "fence"},
}
_UNKNOWN: Final = {"mood": {"good": [True]}}


class UpgradesProfile:
    name = "upgrades"
    every_s = 10.0
    is_ours = True

    def cloud(self, seed: int) -> SimCloud:
        return SimCloud(
            seed=seed,
            cells=2,
            hosts=_HOSTS,
            racks=3,
            workers=2,
            deadlines=Deadlines(60, 300, 600),
            join_token=_TOKEN,
        )

    async def prepare(self, simulation: Simulation) -> None:
        await LifecycleProfile().prepare(simulation)
        await _use(simulation, simulation.world.rng("use"))
        await _change_releases(simulation)

    def choices(self) -> list[tuple[float, str, Act]]:
        upgrades: list[tuple[float, str, Act]] = [
            (2, "upgrade an agent", upgrade_agent),
            (4, "finish the upgrade", finish_upgrade),
        ]
        return [(16, "create", create), *upgrades, *OPERATIONS, *FAULTS]

    async def check_at_rest(self, simulation: Simulation) -> None:
        for host in simulation.cloud.hosts.values():
            _upgrade(simulation, host)
        for database in simulation.cloud.databases():
            _finish(simulation, database)
        await come_to_rest(simulation.cloud)
        await check_disks(simulation)
        await check_doctor(simulation)
        simulation.ledger.check_records()
        check_databases(simulation)


# -- what the older release has left ------------------------------------------------------------


async def _use(simulation: Simulation, rng: random.Random) -> None:
    """Some servers, with operations under way when it ends."""
    for _ in range(_SERVERS):
        await create(simulation, rng)
    await simulation.cloud.all_at_rest()
    acts = [act for _, _, act in OPERATIONS]
    for act in rng.choices(acts, k=8):
        await act(simulation, rng)
    await create(simulation, rng)
    await asyncio.sleep(rng.uniform(0, 1))


async def _change_releases(simulation: Simulation) -> None:
    """Stop everything, put it into the forms of the release before, and start it with this one."""
    cloud = simulation.cloud
    for reader in cloud.readers.values():
        await reader.stop()
    for part in cloud.parts():
        part.kill()
    # What they have sent to the databases still arrives there.
    await asyncio.sleep(1)
    under_way = (run for runs in simulation.runs.values() for run in runs.runs.values())
    simulation.counts["under way at the change"] = sum(run.phase not in FINISHED for run in under_way)
    releases: dict[str, Release] = {
        name: _RELEASES[number % len(_RELEASES)] for number, name in enumerate(cloud.hosts)
    }
    simulation.facts["releases"] = releases
    old = {cloud.hosts[name].host.id for name, release in releases.items() if release == "before"}
    for database in cloud.databases():
        rows = write_as_before(database, old)
        simulation.world.trace.note(database.name, f"is of the release before, with {rows} rows")
    cloud.connect_agent = lambda host, process: _connect(simulation, host, process)
    for part in cloud.parts():
        part.start()
    try:
        await cloud.until(lambda view: not len(view.down))
    except TimeoutError:
        simulation.fail("what the release before has left cannot be started")
    for name, cell in cloud.cells.items():
        cloud.readers[name] = await cell.opener(cloud.outside)()


def write_as_before(database: Database, old_hosts: set[str]) -> int:
    """Put a database into the form of schema 1; how many rows it has."""
    source = database.open_aside()
    batches = list(source.read(Index(0)))
    source.close()
    database.clear()
    journal = database.open_aside()
    view = View()
    middle = len(batches) * 2 // 3
    for batch in batches:
        entries = tuple(_register_before(entry, old_hosts) for entry in batch.entries)
        before = Batch(batch.index, batch.id, batch.at_ns, entries)
        journal.append(before)
        apply_batch(view, before)
        if batch.index == middle:
            Snapshots(journal).write(batch.index, view.format, batch.at_ns, dump(view))
        journal.execute(
            sa.text("UPDATE journal SET entries = :body WHERE idx = :index"),
            {"body": encode_as_before(entries), "index": batch.index},
        )
    journal.execute(sa.text("DELETE FROM journal WHERE idx <= :index"), {"index": middle // 2})
    statements = [
        "ALTER TABLE journal DROP COLUMN digest",
        "ALTER TABLE snapshot DROP COLUMN digest",
        "ALTER TABLE journal RENAME COLUMN entries TO body",
        "DROP TABLE journal_anchor",
        "UPDATE journal_schema SET version = 1",
    ]
    for statement in statements:
        journal.execute(sa.text(statement))
    journal.close()
    return len(batches) - middle // 2


def _register_before(entry: Entry, hosts: set[str]) -> Entry:
    """An entry in which these hosts have registered in version 1 of the protocol."""
    return Entry(entry.origin, tuple(_register_event(event, hosts) for event in entry.events))


def _register_event(event: Event, hosts: set[str]) -> Event:
    if not isinstance(event, RecordChanged):
        return event
    return RecordChanged(_register_agent(event.before, hosts), _register_agent(event.after, hosts))


def _register_agent(record: AnyRecord | None, hosts: set[str]) -> AnyRecord | None:
    if not isinstance(record, Agent) or record.id not in hosts:
        return record
    return msgspec.structs.replace(record, protocol=1, credential=None, is_revoked=False)


def encode_as_before(entries: tuple[Entry, ...]) -> bytes:
    """Entries without the fields that have a default, and with the same meaning."""
    return msgspec.msgpack.encode([_strip(entry) for entry in entries])


def _strip(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        fields = [(field, getattr(value, field.name)) for field in _fields(type(value))]
        if config.array_like:
            tag = () if config.tag is None else (config.tag,)
            return [*tag, *(_strip(inner) for _, inner in fields)]
        known = {} if config.tag is None else {config.tag_field: config.tag}
        return known | {
            field.encode_name: _strip(inner) for field, inner in fields if not _is_default(field, inner)
        }
    if isinstance(value, tuple | list):
        return [_strip(inner) for inner in value]
    if isinstance(value, dict):
        return {key: _strip(inner) for key, inner in value.items()}
    return value


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Kept: they are found by evaluating annotations, each time."""
    return msgspec.structs.fields(kind)


def _is_default(field: msgspec.structs.FieldInfo, value: Any) -> bool:
    if field.default_factory is not msgspec.NODEFAULT:
        return bool(value == field.default_factory())
    return field.default is not msgspec.NODEFAULT and bool(value == field.default)


async def finish_upgrade(simulation: Simulation, rng: random.Random) -> None:
    # A database that is away, or whose standby lacks rows, is tried again at rest.
    with contextlib.suppress(JournalError):
        _finish(simulation, rng.choice(simulation.cloud.databases()))


def _finish(simulation: Simulation, database: Database) -> None:
    """Raise a journal to the format of this release, while others write."""
    outside = simulation.cloud.outside
    journal = database.open(outside)
    before = journal.raise_format(
        Origin("", None, None, "finish"), outside.ids.batch_id(), outside.clock.now_ns()
    )
    if before.format < FORMAT:
        name = f"{database.name}: rows of format 1"
        simulation.counts[name] = journal.tail() - 1


# -- agents of three releases -------------------------------------------------------------------


async def upgrade_agent(simulation: Simulation, rng: random.Random) -> None:
    _upgrade(simulation, rng.choice(list(simulation.cloud.hosts.values())))


def _upgrade(simulation: Simulation, host: HostPart) -> None:
    """Restart a host's agent as one of this release, if it is of the release before."""
    releases: dict[str, Release] = simulation.facts["releases"]
    if releases[host.name] == "before":
        releases[host.name] = "current"
        host.restart()


def _connect(simulation: Simulation, host: HostPart, process: Process) -> Client:
    releases: dict[str, Release] = simulation.facts["releases"]
    address = host.host.cell or ""
    if releases[host.name] == "current":
        return simulation.cloud.network.client(process, address)
    release: type[_AgentTransport] = _BeforeTransport if releases[host.name] == "before" else _ToComeTransport
    return Client(f"http://{address}", transport=release(simulation, process, address))


class _AgentTransport(SimTransport):
    """Turns what an agent says and hears into what an agent of another release would."""

    def __init__(self, simulation: Simulation, process: Process, address: str) -> None:
        super().__init__(simulation.cloud.network, process, address)
        self._simulation = simulation

    async def exchange(self, request: WireRequest) -> WireAnswer:
        path = request.path
        said = msgspec.json.encode(self._say(path, msgspec.json.decode(request.content)))
        headers = self._name(dict(request.headers)) | {b"content-length": b"%d" % len(said)}
        sent = WireRequest(request.method, path, list(headers.items()), said)
        answer = await super().exchange(sent)
        if answer.status != 200:
            return answer
        heard = self._hear(path, msgspec.json.decode(answer.content))
        return answer._replace(content=msgspec.json.encode(heard))

    def _name(self, headers: dict[bytes, bytes]) -> dict[bytes, bytes]:
        raise NotImplementedError

    def _say(self, path: str, said: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def _hear(self, path: str, heard: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError


class _BeforeTransport(_AgentTransport):
    """Version 1, which refuses what it does not know: there must be none of that."""

    def _name(self, headers: dict[bytes, bytes]) -> dict[bytes, bytes]:
        return {name: value for name, value in headers.items() if name.decode() not in _HEADERS_SINCE}

    def _say(self, path: str, said: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in said.items() if name in _REQUESTS[path]}

    def _hear(self, path: str, heard: dict[str, Any]) -> dict[str, Any]:
        self._refuse(path, heard, _ANSWERS[path])
        for name, known in _PARTS.items():
            for part in heard.get(name, ()):
                self._refuse(f"{path} {name}", part, known)
        return heard

    def _refuse(self, where: str, heard: dict[str, Any], known: Iterable[str]) -> None:
        unknown = sorted(heard.keys() - set(known))
        if unknown:
            self._simulation.fail(f"an agent of version 1 is told {unknown} in {where}")


class _ToComeTransport(_AgentTransport):
    """A version to come, with fields that nobody knows yet."""

    def _name(self, headers: dict[bytes, bytes]) -> dict[bytes, bytes]:
        return {**headers, protocol.VERSION_HEADER.encode(): b"%d" % (protocol.VERSION + 1)}

    def _say(self, path: str, said: dict[str, Any]) -> dict[str, Any]:
        providers = [{**provider, **_UNKNOWN} for provider in said.get("providers", ())]
        return {**said, **({"providers": providers} if providers else {}), **_UNKNOWN}

    def _hear(self, path: str, heard: dict[str, Any]) -> dict[str, Any]:
        orders = [{**order, **_UNKNOWN} for order in heard.get("orders", ())]
        return {**heard, **({"orders": orders} if orders else {}), **_UNKNOWN}


# -- what must hold at rest ---------------------------------------------------------------------


def check_databases(simulation: Simulation) -> None:
    """Every database is sound: what was written before can be read, and what came behind it is chained."""
    for database in simulation.cloud.databases():
        journal = database.open_aside()
        wrong = problems(journal)
        if wrong:
            simulation.fail(f"database {database.name}: {wrong}")
        simulation.counts[f"{database.name}: rows of the release before"] = journal.unverified()
        journal.close()
