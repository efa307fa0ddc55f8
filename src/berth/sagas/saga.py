"""What an operation is made of, as data: the conductor, the region, the doctor and the table in the docs all
read the same.

A step is an order to an agent, or a change of the books. It can be repeated: an agent knows an order by its
id, and a change of the books that has been made is recognised. When a step fails, ``failing`` says what then:

* ``back``: undo it and everything before it, and end as failed;
* ``next``: the same, but where the claim stands, move it to the next alternate and go forward again;
* ``stop``: end as failed, as it is: who asked may ask again;
* ``skip``: go on; what it leaves behind on a host is swept when the host says what it has;
* ``again``: try it until it is done. That is for the books alone, where nobody could go on without it.

Undoing by an agent is tried once, within its deadline, for the same reason. Undoing in the books is tried
until it is done.

Before the first step that destroys something for good the books are checked: what others have changed is met
by the conflict policy there, and nowhere else. From then on an entry in the books is made whatever others
change, and so no conflict can stop an operation half-way.
"""

from typing import Final, Literal, NamedTuple

from berth.model.servers import Task, VmState

Role = Literal["source", "dest"]
Failing = Literal["back", "next", "stop", "skip", "again"]
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
]
"""What an agent can do to a server. ``prepare`` makes room for one that comes, ``send`` shuts one down that
goes and keeps it, ``receive`` runs what has come, ``resume`` runs again what was sent, or was to be."""

ClaimChange = Literal["claimed", "give_back", "release", "release_migration", "check"]
"""What can be done in the books. ``claimed`` was done in the region; ``give_back`` gives the server what its
migration holds; ``release`` releases everything; ``check`` looks whether others have changed what the steps
after it write."""

Holds = Literal["nothing", "source", "dest", "dest, migration source"]
"""Which parts of a server's are held, and by whom: by itself, unless it says migration."""

PLACEMENT: Final = "books"


class Step(NamedTuple):
    """``unless_down``: where the host is down the step is left out. ``stopped_as``: what the server is if the
    operation stops here; None: what it is after any other failure; "unchanged": what it was when the
    operation began."""

    name: str
    at: Role | Literal["books"]
    does: Verb | ClaimChange
    undo: Verb | ClaimChange | None = None
    failing: Failing = "stop"
    unless_down: bool = False
    stopped_as: VmState | Literal["unchanged"] | None = None


class Saga(NamedTuple):
    """``before``: in which states it may begin. ``done`` and ``failed``: which hosts may have the server then
    (None: as before), and what is held. ``state_done`` and ``state_failed``: what the server is then; None:
    what it was before, where a resize begins before its confirmation, and what was in error is active once
    something was done; "" for gone."""

    name: str
    action: str
    task: Task
    before: frozenset[VmState]
    steps: tuple[Step, ...]
    state_done: VmState | Literal[""] | None
    state_failed: VmState | None
    hosts_done: tuple[Role, ...] | None
    hosts_failed: tuple[Role, ...] | None
    holds_done: Holds
    holds_failed: Holds


def runs_again(step: Step) -> bool:
    """Whether undoing the step runs the server again: where that fails, it is in error."""
    return step.undo in ("resume", "start")


def find_released(saga: Saga) -> frozenset[str]:
    """Whose allocations the operation releases when it succeeds: "server", "migration", both or none."""
    by_entry = {"release": ("server", "migration"), "release_migration": ("migration",)}
    return frozenset(who for step in saga.steps for who in by_entry.get(step.does, ()))


def find_written(saga: Saga) -> frozenset[str]:
    """Whose allocations the conductor changes in the operation, where everything succeeds."""
    gives_back = any(step.does == "give_back" for step in saga.steps)
    return find_released(saga) | (frozenset(("server", "migration")) if gives_back else frozenset())


def _on(*states: VmState) -> frozenset[VmState]:
    return frozenset(states)


_CLAIMED_NEW: Final = Step("claim", "books", "claimed", "release")
_CLAIMED_MOVE: Final = Step("claim", "books", "claimed", "give_back")
_BUILD: Final = Step("build", "dest", "build", "destroy", "next")
_PREPARE: Final = Step("prepare", "dest", "prepare", "destroy", "next")
_SEND: Final = Step("send", "source", "send", "resume", "back")
_RECEIVE: Final = Step("receive", "dest", "receive", None, "back")
_CHECK: Final = Step("check", "books", "check")
_RELEASE: Final = Step("release", "books", "release", None, "again")
_RELEASE_MIGRATION: Final = Step("release", "books", "release_migration", None, "again")
_ANY: Final = _on("active", "stopped", "resized", "shelved", "shelved_offloaded", "error")

ALL: Final = (
    Saga(
        "create", "create", "spawning", _on(), (_CLAIMED_NEW, _BUILD),
        "active", "error", ("dest",), (), "dest", "nothing",
    ),
    Saga(
        "delete", "delete", "deleting", _ANY,
        (
            _CHECK._replace(stopped_as="unchanged"),
            Step("destroy", "dest", "destroy", unless_down=True),
            Step("destroy at the source", "source", "destroy", unless_down=True),
            _RELEASE,
        ),
        "", "error", (), None, "nothing", "dest",
    ),
    Saga(
        "resize", "resize", "resize_prep", _on("active", "stopped"),
        (_CLAIMED_MOVE, _PREPARE, _SEND, _RECEIVE),
        "resized", None, ("source", "dest"), ("source",), "dest, migration source", "source",
    ),
    Saga(
        "migrate", "migrate", "resize_prep", _on("active", "stopped"),
        (_CLAIMED_MOVE, _PREPARE, _SEND, _RECEIVE),
        "resized", None, ("source", "dest"), ("source",), "dest, migration source", "source",
    ),
    Saga(
        "confirm", "confirmResize", "resize_confirming", _on("resized", "error"),
        (
            _CHECK,
            Step("clean up", "source", "destroy"),
            _RELEASE_MIGRATION,
        ),
        None, "resized", ("dest",), ("source", "dest"), "dest", "dest, migration source",
    ),
    Saga(
        "revert", "revertResize", "resize_reverting", _on("resized", "error"),
        (
            _CHECK,
            Step("destroy", "dest", "destroy", unless_down=True),
            Step("give back", "books", "give_back"),
            Step("resume", "source", "resume"),
        ),
        None, "error", ("source",), ("source", "dest"), "source", "dest, migration source",
    ),
    Saga(
        "live_migrate", "live-migration", "migrating", _on("active"),
        (
            _CLAIMED_MOVE,
            _PREPARE,
            Step("live migrate", "source", "live_migrate", "resume", "back"),
            _RECEIVE,
            Step("clean up", "source", "destroy", None, "skip"),
            _RELEASE_MIGRATION,
        ),
        "active", None, ("dest",), ("source",), "dest", "source",
    ),
    Saga(
        "evacuate", "evacuate", "rebuilding", _on("active", "stopped", "error"),
        (_CLAIMED_MOVE, _BUILD),
        None, "error", ("dest",), ("source",), "dest, migration source", "source",
    ),
    Saga(
        "rebuild", "rebuild", "rebuilding", _on("active", "stopped", "error"),
        (Step("rebuild", "dest", "rebuild"),),
        None, "error", None, None, "dest", "dest",
    ),
    Saga(
        "shelve", "shelve", "shelving", _on("active", "stopped"),
        (
            Step("stop", "dest", "stop", "start", "back"),
            Step("snapshot", "dest", "snapshot", None, "back"),
        ),
        "shelved", None, None, None, "dest", "dest",
    ),
    Saga(
        "shelve_offload", "shelveOffload", "shelving_offloading", _on("shelved"),
        (
            _CHECK,
            Step("destroy", "dest", "destroy", unless_down=True),
            _RELEASE,
        ),
        "shelved_offloaded", "shelved", (), None, "nothing", "dest",
    ),
    Saga(
        "shelve_away", "shelve", "shelving", _on("active", "stopped"),
        (
            Step("stop", "dest", "stop", "start", "back"),
            Step("snapshot", "dest", "snapshot", None, "back"),
            _CHECK._replace(failing="back"),
            Step("destroy", "dest", "destroy", stopped_as="shelved"),
            _RELEASE,
        ),
        "shelved_offloaded", None, (), None, "nothing", "dest",
    ),
    Saga(
        "unshelve", "unshelve", "unshelving", _on("shelved_offloaded"),
        (_CLAIMED_NEW, _BUILD),
        "active", "shelved_offloaded", ("dest",), (), "dest", "nothing",
    ),
    Saga(
        "unshelve_here", "unshelve", "unshelving", _on("shelved"),
        (Step("start", "dest", "start"),),
        "active", "shelved", None, None, "dest", "dest",
    ),
    Saga(
        "start", "start", "powering-on", _on("stopped"),
        (Step("start", "dest", "start"),),
        "active", None, None, None, "dest", "dest",
    ),
    Saga(
        "stop", "stop", "powering-off", _on("active", "error"),
        (Step("stop", "dest", "stop"),),
        "stopped", None, None, None, "dest", "dest",
    ),
    Saga(
        "sweep", "sweep", "deleting", _on(),
        (_RELEASE_MIGRATION,),
        None, None, None, None, "dest", "dest, migration source",
    ),
)  # fmt: skip
"""``sweep`` is the cell's own: the source of an evacuated server is back, and clean."""

BY_NAME: Final = {saga.name: saga for saga in ALL}
