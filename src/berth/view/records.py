"""Records by kind and id, by what else they are looked for, and what each project has of them.

An index is a function of a record; each of the keys that it gives leads back to the id. Ids come in the order
in which the records came; those of hosts are in their own order too, for lists in pages.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from berth.model.clusters import Cluster
from berth.model.events import AnyRecord
from berth.model.groups import Group
from berth.model.quotas import Amounts, amounts_of, is_counted
from berth.model.saga_runs import Agent, Assignment, Instance, Outbox, SagaRun
from berth.model.servers import (
    Action,
    DeletedServer,
    Flavor,
    Host,
    KeyPair,
    Migration,
    Record,
    RevokedToken,
    Server,
    UnknownServer,
)
from berth.view.sets import OrderedIds

R = TypeVar("R", bound=Record)


def unit_key(host: str, unit: str) -> str:
    """What a unit of a host is looked for by."""
    return f"{host} {unit}"


_INDEXES: Final[dict[type[Any], dict[str, Callable[[Any], Iterable[str]]]]] = {
    Agent: {"name": lambda agent: (agent.name,)},
    Assignment: {
        "server": lambda assignment: (assignment.server,),
        "host": lambda assignment: (assignment.host,),
        "unit": lambda assignment: [unit_key(assignment.host, name) for name in assignment.unit_names()],
    },
    Server: {
        "project": lambda server: (server.project,),
        "state": lambda server: (server.state,),
        "host": lambda server: (server.place.id,) if server.place is not None else (),
        "port": lambda server: server.ports if server.needs else (),
    },
    DeletedServer: {"project": lambda deleted: (deleted.server.project,)},
    Migration: {"server": lambda migration: (migration.server,)},
    Cluster: {
        "project": lambda cluster: (cluster.project,),
        "name": lambda cluster: (cluster.name,),
        "group": lambda cluster: cluster.groups,
    },
    Action: {
        "server": lambda action: (action.server,),
        # Those that are done are not looked for by that.
        "state": lambda action: (
            (action.state,)
            if action.state == "running" or action.state == "failed"
            else ("failed",)
            if action.state is None and action.message is not None
            else ()
        ),
    },
    KeyPair: {"user": lambda pair: (pair.user,)},
    RevokedToken: {"user": lambda token: (token.user,)},
    Flavor: {"name": lambda flavor: (flavor.name,)},
    Host: {
        "name": lambda host: (host.name,),
        "number": lambda host: (str(host.number),),
        "driver": lambda host: (host.driver,),
        "cell": lambda host: (host.cell,),
        "complaining": lambda host: ("",) if host.complaints else (),
    },
    Outbox: {"cell": lambda outbox: (outbox.cell,)},
    # Only of those that go through several cells.
    SagaRun: {"crossing": lambda run: (run.server,) if run.cells else ()},
    UnknownServer: {"cell": lambda server: (server.cell,)},
    Instance: {
        "host": lambda instance: instance.hosts,
        "left_on": lambda instance: instance.left_on,
        "evacuated": lambda instance: {left.host for left in instance.evacuated},
    },
}

_NOTHING: Final[Mapping[str, Any]] = {}


class Records:
    def __init__(self) -> None:
        self._by_id: dict[type[Any], dict[str, Any]] = {}
        # By kind and name of the index: the ids under each key.
        self._found: dict[type[Any], dict[str, dict[str, dict[str, None]]]] = {
            kind: {name: {} for name in indexes} for kind, indexes in _INDEXES.items()
        }
        # The same by kind, each with the function that gives the keys.
        self._kept = {
            kind: tuple((key_of, self._found[kind][name]) for name, key_of in indexes.items())
            for kind, indexes in _INDEXES.items()
        }
        self._host_order: OrderedIds[str] = OrderedIds()
        self._followers: list[Callable[[AnyRecord], None]] = []

    def follow(self, note: Callable[[AnyRecord], None]) -> None:
        """Have ``note`` told of every record that changes from now on: as it is then, or as it was if it is
        gone."""
        self._followers.append(note)

    def get(self, kind: type[R], id: str) -> R | None:
        record: R | None = self._of(kind).get(id)
        return record

    def all(self, kind: type[R]) -> Collection[R]:
        return self._of(kind).values()

    def count(self, kind: type[Record]) -> int:
        return len(self._of(kind))

    def find(self, kind: type[R], index: str, key: str) -> list[R]:
        """The records of a kind of which an index says ``key``."""
        by_id = self._of(kind)
        return [by_id[id] for id in self._found[kind][index].get(key, ())]

    def count_found(self, kind: type[Record], index: str, key: str) -> int:
        """How many records ``find`` would find."""
        return len(self._found[kind][index].get(key, ()))

    def keys(self, kind: type[Record], index: str) -> Collection[str]:
        """What an index says of any record of a kind."""
        return self._found[kind][index].keys()

    def hosts_behind(self, marker: str | None) -> Iterator[str]:
        """The ids of hosts greater than the marker, in order; all of them without one."""
        return self._host_order.behind(marker)

    def current(self, record: AnyRecord) -> AnyRecord | None:
        """What stands now under the kind and id of a record."""
        found: AnyRecord | None = self._by_id.get(type(record), _NOTHING).get(record.id)
        return found

    def change(self, before: AnyRecord | None, after: AnyRecord | None) -> None:
        record = after or before
        assert record is not None, "a change is of something"
        kind, id = type(record), record.id
        if after is not None:
            self._by_id.setdefault(kind, {})[id] = after
        else:
            del self._by_id[kind][id]
        if kind is Host and before is None:
            self._host_order.add(id)
        elif kind is Host and after is None:
            self._host_order.remove(id)
        for key_of, ids in self._kept.get(kind, ()):
            come = () if after is None else key_of(after)
            if before is not None:
                gone = key_of(before)
                # A record that stays under a key keeps its place there.
                if gone == come:
                    continue
                for key in set(gone).difference(come):
                    del ids[key][id]
                    if not ids[key]:
                        del ids[key]
            for key in come:
                if key not in ids:
                    ids[key] = {id: None}
                elif id not in ids[key]:
                    ids[key][id] = None
        for note in self._followers:
            note(record)

    def everything(self) -> Iterable[AnyRecord]:
        for by_id in self._by_id.values():
            yield from by_id.values()

    def state(self) -> dict[str, object]:
        return {
            kind.__name__: dict(sorted(by_id.items()))
            for kind, by_id in sorted(self._by_id.items(), key=lambda item: item[0].__name__)
            if by_id
        }

    def _of(self, kind: type[Any]) -> Mapping[str, Any]:
        return self._by_id.get(kind, _NOTHING)


class ProjectCounts:
    """What quotas count, summed over the records and groups of each project. Changed by the view alone.
    ``image_bytes`` is the sum over all projects."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, int]] = {}
        self.image_bytes = 0

    def of(self, project: str) -> Amounts:
        return self._sums.get(project, {})

    def change(self, before: AnyRecord | Group | None, after: AnyRecord | Group | None) -> None:
        if not is_counted(after or before):
            return
        gone, come = amounts_of(before), amounts_of(after)
        if gone != come:
            self._add(*gone, -1)
            self._add(*come, +1)

    def _add(self, project: str, amounts: Amounts, sign: int) -> None:
        if not amounts:
            return
        self.image_bytes += sign * amounts.get("image_bytes", 0)
        sums = self._sums.setdefault(project, {})
        for name, amount in amounts.items():
            total = sums.get(name, 0) + sign * amount
            if total:
                sums[name] = total
            else:
                sums.pop(name, None)
        if not sums:
            del self._sums[project]

    def state(self) -> dict[str, dict[str, int]]:
        return {project: dict(sorted(sums.items())) for project, sums in sorted(self._sums.items())}
