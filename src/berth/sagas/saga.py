"""What a saga is made of, as data: its steps, its outcomes, and where the server is at its end. The runner,
the conductor, the status sync, the doctor and the table in the docs all read it, and know no saga by its
name. Every ``Saga`` that a module of this package defines is found by being there (``all_sagas``).

A step is a command to an agent, or a change of allocations in Placement. It can be repeated: an agent knows a
command by its id, and a change that has been made is recognised. ``on_failure`` says what follows when it
fails:

* ``undo``: undo it and everything before it, and end as failed;
* ``next_alternate``: the same, but move the claim to the next alternate, if one is left, and go forward
  again;
* ``stop``: end as failed, as it is; the user may send the request again;
* ``skip``: go on; what it leaves on a host is destroyed as a leftover when the host reports its servers;
* ``retry``: try it until it is done. That is for Placement alone, where the saga cannot go on without it.

Undoing by an agent is tried once, within its deadline, for the same reason. Undoing in Placement is tried
until it is done.

A run that is aborted begins no step any more that may fail: it fails there, as ``on_failure`` says. An agent
that is at such a step is told to give it up. So an abort ends nowhere where a failure does not, and a step
that must not fail is done all the same.

Before the first step that cannot be undone the allocations are checked: a change by another client
is met by the conflict policy there, and nowhere else. From then on allocations are written whatever others
change, and so no conflict can stop a saga half-way.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Final, Literal

import msgspec

import berth.sagas
from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.saga_runs import SagaRun
from berth.model.servers import Migration, MigrationStatus, Server, Task, VmState
from berth.sagas.conflicts import plus
from berth.sagas.requests import release_need
from berth.view import View

Role = Literal["source", "dest"]
OnFailure = Literal["undo", "next_alternate", "stop", "skip", "retry"]
Verb = Literal[
    "build",
    "destroy",
    "prepare",
    "send",
    "receive",
    "resume",
    "live_migrate",
    "rebuild",
    "snapshot",
    "start",
    "stop",
    "reboot",
    "reboot_hard",
    "pause",
    "unpause",
    "suspend",
    "rescue",
    "unrescue",
]
"""What an agent can do to a server. ``prepare`` makes room for a server that comes, ``send`` shuts a
server down that goes and keeps it, ``receive`` runs what has come, ``resume`` runs again what was sent, or
was to be, or was suspended."""

GIVING_UNITS: Final[frozenset[str]] = frozenset(
    ("build", "prepare", "receive", "resume", "rebuild", "start", "reboot_hard", "rescue", "unrescue")
)
"""Commands that give a server its units: it uses them afterwards."""

ClaimChange = Literal["claimed", "give_back", "release", "release_migration", "check"]
"""What can be done to allocations. ``claimed`` was done in the region; ``give_back`` gives the server what
its migration holds; ``release`` releases everything; ``check`` looks whether others have changed what the
steps after it write."""

Holds = Literal["nothing", "source", "dest", "dest, migration source"]
"""What is held: the server's part at the source or at the destination, by the server unless it says
migration."""

PLACEMENT: Final = "placement"
AS_BEFORE: Final = "as before"
GONE: Final = "gone"
UNCHANGED: Final = "unchanged"


@dataclass(frozen=True, slots=True)
class Step:
    """``skip_if_down``: the step is left out where its host is down.

    ``stopped_as``: what the server is if the saga stops here; None: what it is after any other failure;
    UNCHANGED: what it was when the saga began. ``migration_stopped_as`` is the same for its migration,
    ``stopped_on`` for the hosts that may have the server.

    ``is_build``: its failures count against the host, in the scheduler's eyes.
    """

    name: str
    _: KW_ONLY
    at: Role | Literal["placement"]
    do: Verb | ClaimChange
    undo: Verb | ClaimChange | None = None
    on_failure: OnFailure = "stop"
    skip_if_down: bool = False
    stopped_as: VmState | Literal["unchanged"] | None = None
    migration_stopped_as: MigrationStatus | None = None
    stopped_on: tuple[Role, ...] | None = None
    is_build: bool = False

    @property
    def may_fail(self) -> bool:
        """Whether its failure ends the run, or turns it back. An abort is such a failure."""
        return self.do != "claimed" and self.on_failure in ("undo", "next_alternate", "stop")

    @property
    def undo_name(self) -> str:
        """What the undoing of this step is called in a server's history."""
        return f"undo {self.name}"

    @property
    def runs_again(self) -> bool:
        """Whether undoing the step runs the server again: where that fails, the server is in error."""
        return self.undo in ("resume", "start")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What there is when a run has ended.

    ``state`` AS_BEFORE is what the server was when the saga began (for confirm and revert: when the resize
    began); a server that was in error is active once something was done. ``on_hosts``: which hosts may have
    it; None: as before. ``leaves_source``: the source is down and still has it; its migration holds the
    source until that host is back and clean. ``migration`` is the status of its migration.
    """

    state: VmState | Literal["as before", "gone"]
    on_hosts: tuple[Role, ...] | None = None
    holds: Holds
    migration: MigrationStatus = "error"
    leaves_source: bool = False


# -- where a server is when a run has ended --------------------------------------------------------

EndOfServer = Callable[[Server, SagaRun, Migration | None], Server]
"""What else changes in a server's record when a run has ended: where it is, which migration it has. What it
holds and its state follow from the run and the saga's outcome; the status sync has set them already."""


def has_given_back(run: SagaRun) -> bool:
    """Whether the migration has nothing left, in a run that may give back."""
    return run.migration_claim is None or not run.migration_claim.held


def stay(server: Server, run: SagaRun, migration: Migration | None) -> Server:
    """The server stays where it was."""
    return msgspec.structs.replace(server, state_before=None)


def keep(server: Server, run: SagaRun, migration: Migration | None) -> Server:
    """Nothing has changed: the server waits for its resize to be confirmed or reverted, as before."""
    return server


def arrive(server: Server, run: SagaRun, migration: Migration | None) -> Server:
    """The server is at its destination, and a move is over."""
    return msgspec.structs.replace(
        server, place=run.dest, migration=None, flavor_before=None, state_before=None
    )


def await_confirmation(server: Server, run: SagaRun, migration: Migration | None) -> Server:
    """The server is at its destination, and its migration holds the source until the move is confirmed or
    reverted."""
    return msgspec.structs.replace(server, place=run.dest, migration=run.migration)


def leave(server: Server, run: SagaRun, migration: Migration | None) -> Server:
    """The server is on no host, and its needs are met nowhere."""
    needs = tuple(map(release_need, server.needs))
    return msgspec.structs.replace(server, place=None, state_before=None, needs=needs)


def return_to_source(server: Server, run: SagaRun, migration: Migration | None) -> Server:
    """The server is at its source again, as it was before the move."""
    if migration is None or not has_given_back(run):
        # Placement refused to give back. Both halves are held until an operator decides.
        return stay(server, run, migration)
    return msgspec.structs.replace(
        server,
        place=run.source,
        migration=None,
        flavor=server.flavor_before or server.flavor,
        flavor_before=None,
        kept=plus((migration.kept, run.claim.kept)),
        needs=migration.needs,
        state_before=None,
    )


# -- the saga ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Saga:
    """One lifecycle operation.

    ``action`` is what Nova calls it in a server's history, ``task`` what a server shows meanwhile,
    ``starts_in`` the states in which it may begin, ``requested_by`` the request in the words of the docs.
    ``migration_meanwhile`` is the status of the migration while a run is under way; None: as before.
    ``unplaced``: what a new server is if there is no place for it; None: the request is refused.
    ``may_cross``: it may move the server to another cell, where that is allowed.
    ``settle``: what else changes in the region's records when a run has ended.

    A saga that a cell begins by itself has no action in the region: ``apply`` makes its progress known there,
    and ``is_applied`` says whether that is done. ``recorded_as`` is its name in the journal, where that is
    another.
    """

    name: str
    action: str
    task: Task | None
    starts_in: frozenset[VmState]
    steps: tuple[Step, ...]
    done: Outcome
    failed: Outcome
    on_done: EndOfServer = stay
    on_failed: EndOfServer = stay
    requested_by: str
    migration_meanwhile: MigrationStatus | None = None
    unplaced: VmState | None = None
    may_cross: bool = False
    settle: Callable[[View, SagaRun, int], tuple[RecordChanged, ...]] | None = None
    apply: Callable[[View, SagaRun, int], Enact | None] | None = None
    is_applied: Callable[[View, SagaRun], bool] | None = None
    recorded_as: str | None = None

    @property
    def key(self) -> str:
        """Its name in the journal."""
        return self.recorded_as or self.name

    @property
    def is_move(self) -> bool:
        """Whether its claim was split between the server and a migration."""
        return self.steps[0].do == "claimed" and self.steps[0].undo == "give_back"

    @property
    def is_placement(self) -> bool:
        """Whether the server was nowhere before its claim."""
        return self.steps[0].do == "claimed" and self.steps[0].undo == "release"

    @property
    def released(self) -> frozenset[str]:
        """Whose allocations it releases when it succeeds: "server", "migration", both or none."""
        whose = {"release": ("server", "migration"), "release_migration": ("migration",)}
        return frozenset(who for step in self.steps for who in whose.get(step.do, ()))

    @property
    def written(self) -> frozenset[str]:
        """Whose allocations the conductor changes, where everything succeeds."""
        gives_back = any(step.do == "give_back" for step in self.steps)
        return self.released | (frozenset(("server", "migration")) if gives_back else frozenset())

    def find_step(self, name: str) -> Step | None:
        """The step that an entry in a server's history is about; None where it is about something else."""
        return next((step for step in self.steps if step.name == name), None)

    def find_undone(self, name: str) -> Step | None:
        """The step whose undoing an entry in a server's history is about."""
        return next((step for step in self.steps if step.undo_name == name), None)


def states(*names: VmState) -> frozenset[VmState]:
    return frozenset(names)


# -- steps that several sagas have ----------------------------------------------------------------

CLAIM_NEW: Final = Step("claim", at=PLACEMENT, do="claimed", undo="release")
CLAIM_MOVE: Final = Step("claim", at=PLACEMENT, do="claimed", undo="give_back")
BUILD: Final = Step(
    "build", at="dest", do="build", undo="destroy", on_failure="next_alternate", is_build=True
)
PREPARE: Final = Step(
    "prepare", at="dest", do="prepare", undo="destroy", on_failure="next_alternate", is_build=True
)
SEND: Final = Step("send", at="source", do="send", undo="resume", on_failure="undo")
RECEIVE: Final = Step("receive", at="dest", do="receive", on_failure="undo")
STOP: Final = Step("stop", at="dest", do="stop", undo="start", on_failure="undo")
SNAPSHOT: Final = Step("snapshot", at="dest", do="snapshot", on_failure="undo")
CHECK: Final = Step("check", at=PLACEMENT, do="check")
DESTROY: Final = Step("destroy", at="dest", do="destroy", skip_if_down=True)
RELEASE: Final = Step("release", at=PLACEMENT, do="release", on_failure="retry")
RELEASE_MIGRATION: Final = Step("release", at=PLACEMENT, do="release_migration", on_failure="retry")


# -- all of them ----------------------------------------------------------------------------------


@cache
def all_sagas() -> tuple[Saga, ...]:
    """All sagas, in the order of their files."""
    found: dict[str, Saga] = {}
    for module in pkgutil.iter_modules(berth.sagas.__path__):
        values = vars(importlib.import_module(f"{berth.sagas.__name__}.{module.name}")).values()
        for saga in (value for value in values if isinstance(value, Saga)):
            assert found.setdefault(saga.name, saga) is saga, f"two sagas are called {saga.name}"
    return tuple(found.values())


def find_saga(key: str) -> Saga:
    """The saga that a journal calls this."""
    return _by_key()[key]


@cache
def _by_key() -> dict[str, Saga]:
    return {saga.key: saga for saga in all_sagas()}
