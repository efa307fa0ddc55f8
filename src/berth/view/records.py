"""Records by kind and id, and by what else they are looked for.

An index is a function of a record; each of the keys that it gives leads back to the id. Ids come in the order
in which the records came.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from berth.model.orders import Instance
from berth.model.records import AnyRecord
from berth.model.servers import Action, Flavor, Host, Migration, Record, Server

R = TypeVar("R", bound=Record)

_INDEXES: Final[dict[type[Any], dict[str, Callable[[Any], Iterable[str]]]]] = {
    Server: {
        "project": lambda server: (server.project,),
        "host": lambda server: (server.place.id,) if server.place is not None else (),
    },
    Migration: {"server": lambda migration: (migration.server,)},
    Action: {"server": lambda action: (action.server,)},
    Flavor: {"name": lambda flavor: (flavor.name,)},
    Host: {"name": lambda host: (host.name,)},
    Instance: {
        "host": lambda instance: instance.hosts,
        "evacuated": lambda instance: {left.host for left in instance.evacuated},
    },
}


class Records:
    def __init__(self) -> None:
        self._by_id: dict[type[Any], dict[str, Any]] = {}
        self._found: dict[tuple[type[Any], str], dict[str, dict[str, None]]] = {}

    def get(self, kind: type[R], id: str) -> R | None:
        record: R | None = self._of(kind).get(id)
        return record

    def all(self, kind: type[R]) -> Iterable[R]:
        return self._of(kind).values()

    def count(self, kind: type[Record]) -> int:
        return len(self._of(kind))

    def find(self, kind: type[R], index: str, key: str) -> list[R]:
        """The records of a kind of which an index says ``key``."""
        by_id = self._of(kind)
        return [by_id[id] for id in self._found.get((kind, index), {}).get(key, ())]

    def current(self, record: AnyRecord) -> AnyRecord | None:
        """What stands now under the kind and id of a record."""
        found: AnyRecord | None = self._of(type(record)).get(record.id)
        return found

    def change(self, before: AnyRecord | None, after: AnyRecord | None) -> None:
        if before is not None:
            self._unlist(before)
        if after is not None:
            self._of(type(after))[after.id] = after
            for name, key_of in _INDEXES.get(type(after), {}).items():
                for key in key_of(after):
                    self._found.setdefault((type(after), name), {}).setdefault(key, {})[after.id] = None
        elif before is not None:
            del self._of(type(before))[before.id]

    def _unlist(self, record: AnyRecord) -> None:
        for name, key_of in _INDEXES.get(type(record), {}).items():
            by_key = self._found.get((type(record), name), {})
            for key in key_of(record):
                del by_key[key][record.id]
                if not by_key[key]:
                    del by_key[key]

    def everything(self) -> Iterable[AnyRecord]:
        for by_id in self._by_id.values():
            yield from by_id.values()

    def state(self) -> dict[str, object]:
        return {
            kind.__name__: dict(sorted(by_id.items()))
            for kind, by_id in sorted(self._by_id.items(), key=lambda item: item[0].__name__)
            if by_id
        }

    def _of(self, kind: type[Any]) -> dict[str, Any]:
        return self._by_id.setdefault(kind, {})
