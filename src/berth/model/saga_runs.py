"""What goes down into a cell, and how far it has come: the records of a cell's journal.

An order (``SagaRun``) is one operation on one server. The region writes it once; from then on only the cell's
conductor replaces it, a version at a time, until it is ``done`` or ``failed``; the region reads that, and
takes it away. Everything that a crash may interrupt can be told from the record: which step is next, what was
written into the books last, and why it went wrong.
"""

from typing import Literal

import msgspec

from berth.model.placement import Inventory
from berth.model.servers import Conflict, ConflictPolicy, Flavor, Held, Need, Place, Record

Phase = Literal["forward", "back", "done", "failed"]
"""``forward``: the step at ``step`` is next. ``back``: the undoing of it is; what is done ends in ``done``,
what was undone (or stopped half-way, where the operation says so) in ``failed``."""


class Destination(msgspec.Struct, frozen=True, gc=False):
    """Where a server can go, and what it takes there; ``needs`` says where on it each of its needs is met.

    ``kept`` is the part of ``held`` that stands for what others have added. ``shared`` is what of the
    server's at the source it goes on using there: it is not held twice.
    """

    place: Place
    held: Held
    needs: tuple[Need, ...] = ()
    kept: Held = ()
    shared: Held = ()


class ClaimSnapshot(msgspec.Struct, frozen=True, gc=False):
    """What a consumer was last given, and the generation that this made. ``kept`` is the part that others
    were found to have added meanwhile."""

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


class Spec(msgspec.Struct, frozen=True, gc=False):
    """What an agent must know of a server. The extra specs of the flavor and the properties of the image that
    do not say where it goes are for the driver."""

    name: str
    project: str
    user: str
    flavor: Flavor
    image: str | None = None
    image_properties: dict[str, str] = {}


class SagaRun(
    Record,
    frozen=True,
    kw_only=True,
    tag="work",
    rename={"saga": "operation", "claim": "books", "migration_claim": "migration_books"},
):
    """``number`` counts the orders of a server: an older one that turns up again is not carried out.

    ``alternates`` are the ways that are left. ``claim`` is the server's, ``migration_claim`` the migration's.
    ``kept`` is the part of the server's that others had added when the order was made; ``needs`` are the
    server's, with where each is met now. ``shared`` is what the server held on sharing providers at the
    source and holds still: it goes back to the source with what the migration holds.
    ``retry`` says, on the way back, that the next alternate is to be tried at the bottom. ``since_ns`` is
    when the step at hand began.
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
    reason: str | None = None
    conflict: Conflict | None = None
    """What others were found to have changed, where that is the reason."""
    version: int = 0
    log: tuple[StepLog, ...] = ()


class Evacuated(msgspec.Struct, frozen=True, gc=False, rename={"claim": "books"}):
    """A place that a server was taken from while its host was down, and the migration that holds it still."""

    host: str
    migration: str
    claim: ClaimSnapshot
    project: str
    user: str


class Instance(Record, frozen=True, kw_only=True, tag="instance"):
    """Where a server is, as its cell knows: the hosts that may have it. ``last`` is the number of its last
    order; one that is on no host any more stays for a while, for its number."""

    hosts: tuple[str, ...] = ()
    evacuated: tuple[Evacuated, ...] = ()
    last: int = 0
    nowhere_since_s: int | None = None
    left_on: tuple[str, ...] = ()
    """Of one that is to be nowhere: hosts that were down, and have it still when they come back."""


class Agent(Record, frozen=True, kw_only=True, tag="agent"):
    """A host of the cell; ``id`` is its root provider. ``is_down``: it has been silent for too long."""

    name: str
    driver: str
    is_down: bool = False
    registered_at_s: int = 0
    changed_at_s: int = 0
    protocol: int = 1
    """The version that its agent speaks."""
    credential: str | None = None
    """The digest of what its agent shows; None: it has none, and may join."""
    is_revoked: bool = False
    """It may not join either, until an operator readmits it."""
    complaints: tuple[str, ...] = ()
    """What could not be written of what its agent reported, and why."""


class OwnedProvider(msgspec.Struct, frozen=True):
    """What an agent reported of a provider. ``withheld``: classes that are gone from the host and in use; all
    of them is reserved, and this is how much was reserved before."""

    id: str
    inventories: dict[str, Inventory] = {}
    traits: tuple[str, ...] = ()
    withheld: dict[str, int] = {}


class HostTree(Record, frozen=True, kw_only=True, tag="host_tree"):
    """What a host's agent has reported, and so may change and remove; all else in the host's tree is an
    operator's. It is noted before it is written into Placement, so that a crash in between leaves nothing
    without its owner. ``id`` is the host's."""

    providers: tuple[OwnedProvider, ...] = ()


class Term(Record, frozen=True, kw_only=True, tag="term"):
    """Who conducts a cell: whoever came last. One whose number is not this any more has been replaced."""

    number: int


class Outbox(Record, frozen=True, kw_only=True, tag="outbox", rename={"run": "work"}):
    """In the region: an order on its way down, until the cell has it; or that one is to be aborted."""

    cell: str
    run: SagaRun | None = None
    abort: str | None = None
