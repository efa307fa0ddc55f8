"""Which events a reader wants: by kind, subject, user, project and request.

One judge for pages and streams: what is matched is the event as it is shown. Of an event that matches by kind
or subject only the changes that match are shown: a request may change a thousand things, of which a reader
asked for one.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Final, get_args

import msgspec
from msgspec import Meta

from berth.api.kernel.codes import BAD_PARAMETER
from berth.api.kernel.problem import Problem
from berth.api.native import event_kinds as wire
from berth.model.servers import Host, Server
from berth.view import View

KINDS: Final = frozenset(str(kind.__struct_config__.tag) for kind in get_args(wire.Change))

Kind = Annotated[
    str,
    Meta(min_length=1, max_length=64, description="Only changes of this kind, such as `server` or `host`."),
]
Subject = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        description="Only changes about this: the uuid or the name of a host, a server, a group, a flavor or "
        "anything else. Of a host also what changes in its tree, and who takes and gives back what it has.",
    ),
]
EventUser = Annotated[
    str, Meta(min_length=1, max_length=255, description="Only what this user, or part of Berth, did.")
]
EventProject = Annotated[
    str, Meta(min_length=1, max_length=255, description="Only what was done in this project.")
]
RequestId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        description="Only what this request did: its id, or the one that its caller sent.",
    ),
]


class FilterQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters that say which events are wanted."""

    kind: Kind | None = None
    subject: Subject | None = None
    user: EventUser | None = None
    project: EventProject | None = None
    request_id: RequestId | None = None

    def check(self) -> None:
        if self.kind is not None and self.kind not in KINDS:
            text = f"kind: there is no kind of change {self.kind!r}; known are: {', '.join(sorted(KINDS))}."
            raise Problem(400, text, BAD_PARAMETER)

    @property
    def is_everything(self) -> bool:
        return not any((self.kind, self.subject, self.user, self.project, self.request_id))


class EventFilter:
    """``subjects``: everything that the subject of the query is known by."""

    def __init__(self, query: FilterQuery, subjects: frozenset[str]) -> None:
        self._query = query
        self._subjects = subjects

    def is_asked_by(
        self, request_id: str, global_id: str | None, user: str | None, project: str | None
    ) -> bool:
        """Whether whoever asked for an event is meant."""
        query = self._query
        return (
            (query.user is None or query.user == user)
            and (query.project is None or query.project == project)
            and (query.request_id is None or query.request_id in (request_id, global_id))
        )

    def narrow(self, event: wire.Event) -> wire.Event | None:
        """The event with those of its changes that are meant; None if there are none."""
        if not self.is_asked_by(event.request_id, event.global_request_id, event.user, event.project):
            return None
        if self._query.kind is None and not self._subjects:
            return event
        changes = [change for change in event.changes if self._is_meant(change)]
        return msgspec.structs.replace(event, changes=changes) if changes else None

    def _is_meant(self, change: wire.Change) -> bool:
        if self._query.kind is not None and change.__struct_config__.tag != self._query.kind:
            return False
        return not self._subjects or any(name in self._subjects for name in _subjects_of(change))


_OWN: Final = ("provider", "consumer", "aggregate", "group", "trait", "id")
_VALUES: Final = (
    "name",
    "parent_provider_uuid",
    "host",
    "cell",
    "server",
    "holder",
    "source_host",
    "dest_host",
    "migration",
    "group",
    "stands_for",
)
"""The fields that name what a change is about: its own, and those of its values."""


def _subjects_of(change: Any) -> Iterator[str]:
    yield from (getattr(change, name) for name in _OWN if hasattr(change, name))
    for values in (getattr(change, "before", None), getattr(change, "after", None)):
        if isinstance(values, tuple):
            yield from values
        elif values is not None:
            yield from (getattr(values, name) for name in _VALUES if getattr(values, name, None) is not None)
            yield from getattr(values, "allocations", ())


_NAMESAKES_MAX: Final = 20


def find_subjects(view: View, subject: str | None) -> frozenset[str]:
    """Everything that a subject is known by: a name stands for the uuids that have it now, and a host for
    all providers of its tree. Names that are gone are found in the events that have them."""
    if subject is None:
        return frozenset()
    found = {subject, subject.lower()}
    record = view.providers.get(subject.lower()) or view.names.get(subject)  # type: ignore[call-overload]
    if record is not None:
        found |= {record.name, record.id}
        if record.parent is None:
            found |= {part.id for part in record.tree()}
    found |= {host.id for host in view.records.find(Host, "name", subject)}
    server = view.records.get(Server, subject.lower())
    if server is None and record is None:
        view.steps.take(view.records.count(Server) // 2)
        namesakes = [server.id for server in view.records.all(Server) if server.name == subject]
        found.update(namesakes[:_NAMESAKES_MAX])
    return frozenset(found)
