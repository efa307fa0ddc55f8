"""Saga runs, and the other records of a cell's journal.

A ``SagaRun`` is one execution of a saga for one server. The region writes it once; from then on only the
cell's conductor replaces it, a version at a time, until it is ``done`` or ``failed``; the region reads that,
and removes it. A run whose hosts are in several cells is handed from one to the other (``cells``).

Everything that a crash may interrupt can be told from the record: which step is next, what was claimed last,
and why it failed. Fields keep the names that they had in the journal when they were introduced (``rename``).
"""

import contextlib
from typing import Literal

import msgspec

from berth.model.placement import Inventory
from berth.model.servers import (
    NO_GUEST,
    ConflictPolicy,
    Flavor,
    FoundConflict,
    Guest,
    GuestAddress,
    Held,
    Need,
    Place,
    Record,
    UnitClasses,
    VmState,
)

Phase = Literal["forward", "back", "done", "failed"]
"""``forward``: the step at ``step`` is next. ``back``: the undoing of it is. A run that succeeds ends in
``done``; a run that was undone (or stopped half-way, where the saga says so) in ``failed``."""


class Destination(msgspec.Struct, frozen=True, gc=False):
    """A host that a server can go to, and what it holds there; ``needs`` says where each of its needs is met.

    ``kept`` is the part of ``held`` that stands for what others have added. ``shared`` is what the server
    holds on sharing providers at the source and goes on using there: it is not held twice.
    """

    place: Place
    held: Held
    needs: tuple[Need, ...] = ()
    kept: Held = ()
    shared: Held = ()


class ClaimSnapshot(msgspec.Struct, frozen=True, gc=False):
    """What a consumer held when it was last written, and its generation then. ``kept`` is the part that
    others were found to have added meanwhile."""

    held: Held
    generation: int | None
    kept: Held = ()


class StepLog(msgspec.Struct, frozen=True, gc=False):
    """A step that was tried. ``error`` None: it succeeded."""

    step: str
    host: str | None
    started_ns: int
    finished_ns: int
    error: str | None = None


class Spec(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What an agent must know of a server. The extra specs of the flavor and the properties of the image that
    do not say where it goes are for the driver. ``ports`` are those that it is to be attached to."""

    name: str
    project: str
    user: str
    flavor: Flavor
    image: str | None = None
    image_properties: dict[str, str] = {}
    ports: tuple[str, ...] = ()
    guest: Guest = NO_GUEST


class SagaRun(
    Record,
    frozen=True,
    kw_only=True,
    tag="work",
    rename={"saga": "operation", "claim": "books", "migration_claim": "migration_books"},
):
    """``number`` counts the runs of a server: an older one that turns up again is not executed.

    ``alternates`` are the destinations that are left. ``claim`` is the server's, ``migration_claim`` its
    migration's. ``kept`` is the part of the server's that others had added when the run was started;
    ``needs`` are the server's, with where each is met now. ``shared`` is what the server held on sharing
    providers at the source and holds still: it goes back to the source with what the migration holds.
    ``retry`` says, while a run is undone, that the next alternate is to be tried when the first step is
    reached. ``since_ns`` is when the step at hand began, ``deadline_ns`` when it should have ended; 0 if the
    conductor has not said so.
    """

    number: int
    server: str
    saga: str
    request_id: str
    spec: Spec
    project: str
    user: str
    source: Place | None = None
    dest: Place | None = None
    claim: ClaimSnapshot
    migration: str | None = None
    migration_claim: ClaimSnapshot | None = None
    kept: Held = ()
    shared: Held = ()
    needs: tuple[Need, ...] = ()
    alternates: tuple[Destination, ...] = ()
    attempt: int = 1
    attempts_max: int = 3
    policy: ConflictPolicy = "fail"
    is_forced: bool = False
    """Generations are ignored."""
    runs: bool = True
    """Whether the server is to run afterwards."""
    phase: Phase = "forward"
    step: int = 0
    retry: bool = False
    abort: bool = False
    since_ns: int = 0
    deadline_ns: int = 0
    reason: str | None = None
    conflict: FoundConflict | None = None
    """What others were found to have changed, where that is the reason."""
    version: int = 0
    log: tuple[StepLog, ...] = ()
    global_id: str | None = None
    """The id that the caller gave the request, if it did."""
    traceparent: str | None = None
    """The span that what is done for it belongs to, where requests are traced."""
    cells: tuple[str, ...] = ()
    """The cells that a run goes through, if there are several: first the one in whose journal it stands, then
    the others that have a copy of it, or are told of its end."""
    addresses: tuple[GuestAddress, ...] = ()
    """Of the server, as they were last reported; empty: they have not been."""

    @property
    def ids(self) -> str:
        """The id of the request and, behind a space, the one that its caller has given it, as in an origin.
        Empty: the cell began the run by itself."""
        return self.request_id if self.global_id is None else f"{self.request_id} {self.global_id}"


class Evacuated(msgspec.Struct, frozen=True, gc=False, rename={"claim": "books"}):
    """The host that a server was evacuated from, and the migration that holds it until that host is back and
    clean."""

    host: str
    migration: str
    claim: ClaimSnapshot
    project: str
    user: str


class ServerSheet(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a server was when its last run had ended, as far as its cell knows: enough to make its record
    again. ``host`` has it; ``held`` is what it held."""

    spec: Spec
    host: str
    held: Held
    state: VmState
    needs: tuple[Need, ...] = ()


def write_sheet(sheet: ServerSheet) -> str:
    return msgspec.json.encode(sheet).decode()


def read_sheet(text: str) -> ServerSheet | None:
    """None where there is none, or it says what this release does not know."""
    with contextlib.suppress(msgspec.MsgspecError):
        return msgspec.json.decode(text, type=ServerSheet)
    return None


class Instance(Record, frozen=True, kw_only=True, tag="instance"):
    """The hosts that may have a server. ``last`` is the number of its last run. A server that is on no
    host any more is kept for a while, for that number."""

    hosts: tuple[str, ...] = ()
    evacuated: tuple[Evacuated, ...] = ()
    last: int = 0
    nowhere_since_s: int | None = None
    left_on: tuple[str, ...] = ()
    """Of a server that should be on no host: hosts that were down, and will still have it when they are
    back."""
    sheet: str = ""
    """Its ``ServerSheet``, for a region that has lost its record (decision 040). It is kept as text: hardly
    any is ever read, and decoded they would take four times the memory."""


class Agent(Record, frozen=True, kw_only=True, tag="agent"):
    """A host of the cell; ``id`` is its root provider. ``is_down``: no heartbeat has come within the
    timeout."""

    name: str
    driver: str
    is_down: bool = False
    registered_at_s: int = 0
    changed_at_s: int = 0
    protocol: int = 1
    """The version that its agent speaks."""
    credential: str | None = None
    """The digest of its agent's credential; None: it has none, and may join."""
    is_revoked: bool = False
    """It may not join either, until an operator readmits it."""
    complaints: tuple[str, ...] = ()
    """What could not be applied of its agent's report, and why."""
    unit_classes: UnitClasses = ()
    """The resource classes of its tree of which its agent has named every unit, by provider."""
    units_gone: tuple[str, ...] = ()
    """Units that servers have been assigned there, and that its agent does not report any more."""
    heard_at_s: int = 0
    """When its last heartbeat came before it was last marked down, or the one that marked it up."""


class OwnedProvider(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an agent reported of a provider. ``withheld``: classes that are gone from the host and in use; all
    of them is reserved, and this is how much was reserved before. ``units``: the names of the units of those
    classes that have any; ``siblings``: cpus of PCPU that are threads of one core, core by core."""

    id: str
    inventories: dict[str, Inventory] = {}
    traits: tuple[str, ...] = ()
    withheld: dict[str, int] = {}
    units: dict[str, tuple[str, ...]] = {}
    siblings: tuple[tuple[str, ...], ...] = ()


class HostTree(Record, frozen=True, kw_only=True, tag="host_tree"):
    """What a host's agent has reported, and so may change and remove; all else in the host's tree belongs
    to operators. It is recorded before it is written to Placement, so that a crash in between leaves
    nothing without its owner. ``id`` is the host's."""

    providers: tuple[OwnedProvider, ...] = ()


Units = dict[str, dict[str, tuple[str, ...]]]
"""Names of units, by provider and resource class."""
Counts = dict[str, dict[str, int]]
"""Amounts of classes without units, in the same way."""


class Assignment(Record, frozen=True, kw_only=True, tag="assignment"):
    """Which units of a host an allocation stands for. No unit of a host is in two assignments.

    ``holder`` is the consumer of that allocation: the server, or the migration that holds the other half.
    ``counts`` is what it holds there of classes without units. ``run`` is the saga run that it was made for.
    """

    server: str
    host: str
    holder: str
    run: str
    units: Units
    counts: Counts

    def unit_names(self) -> tuple[str, ...]:
        return tuple(name for kinds in self.units.values() for names in kinds.values() for name in names)


def assignment_id(holder: str, host: str) -> str:
    return f"{holder} on {host}"


class Term(Record, frozen=True, kw_only=True, tag="term"):
    """The term of a cell's conductor: the last one that took over. A conductor with an older term does
    nothing. ``heard_at_s``: when the conductor last said that it is at work: every host that is not down has
    sent a heartbeat within the timeout before."""

    number: int
    heard_at_s: int = 0


class UnitsRequest(msgspec.Struct, frozen=True):
    """What a server holds where it is, so that its units follow. ``number`` is that of its last run: a later
    one makes the request obsolete. ``migration``: it is the migration that holds it, at the source.
    ``may_release``: the server is not running, and units that it does not hold any more can be freed."""

    server: str
    place: Place
    held: Held
    number: int
    spec: Spec
    migration: str | None = None
    may_release: bool = False

    @property
    def holder(self) -> str:
        return self.migration or self.server


class Outbox(Record, frozen=True, kw_only=True, tag="outbox", rename={"run": "work"}):
    """In the region: a run that its cell does not have yet; or the id of a run that is to be aborted; or a
    server whose units are to follow what it holds."""

    cell: str
    run: SagaRun | None = None
    abort: str | None = None
    units: UnitsRequest | None = None


class SyncPosition(Record, frozen=True, kw_only=True, tag="sync_position"):
    """In the region: the last index of a cell's journal that hosts and assignments have been brought up from;
    ``id`` is the cell's name. What was read at an earlier index is not written any more."""

    index: int
