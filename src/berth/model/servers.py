"""Servers, and what a region knows of them: records beside the allocations.

The ledger has what a server holds. Its record says what it is, how it is doing, and what was last written
for it (``held``, at the consumer's ``generation``): a change by another client is recognised by the
difference. A record is replaced whole, never changed in place.
"""

from typing import Final, Literal

import msgspec

from berth.model.devices import DeviceProfile, NumaPolicy, PciAlias
from berth.model.placement import Wanted

Held = tuple[Wanted, ...]
"""What one consumer holds, by the names of resource classes."""

UnitClasses = tuple[tuple[str, tuple[str, ...]], ...]
"""Resource classes by provider."""

VmState = Literal[
    "building",
    "active",
    "stopped",
    "paused",
    "suspended",
    "rescued",
    "resized",
    "shelved",
    "shelved_offloaded",
    "soft-delete",
    "error",
]
Task = Literal[
    "spawning",
    "deleting",
    "resize_prep",
    "resize_reverting",
    "resize_confirming",
    "migrating",
    "rebuilding",
    "shelving",
    "shelving_offloading",
    "unshelving",
    "powering-on",
    "powering-off",
    "rebooting",
    "rebooting_hard",
    "pausing",
    "unpausing",
    "suspending",
    "resuming",
    "rescuing",
    "unrescuing",
    "image_snapshot",
    "image_backup",
    "soft-deleting",
    "restoring",
]
ConflictPolicy = Literal["fail", "retry", "merge"]
MigrationKind = Literal["resize", "migration", "live-migration", "evacuation"]
MigrationStatus = Literal[
    "accepted",
    "migrating",
    "finished",
    "confirming",
    "confirmed",
    "reverting",
    "reverted",
    "completed",
    "cancelled",
    "error",
    "done",
]

NOT_RUNNING: Final[frozenset[VmState]] = frozenset(("stopped", "shelved", "shelved_offloaded", "soft-delete"))
"""The states in which a server surely uses none of its units."""

RUNNING: Final = 1
PAUSED: Final = 3
SHUT_DOWN: Final = 4
SUSPENDED: Final = 7
NO_STATE: Final = 0


POWER: Final[dict[VmState, int]] = {
    "active": RUNNING,
    "resized": RUNNING,
    "rescued": RUNNING,
    "paused": PAUSED,
    "suspended": SUSPENDED,
    "stopped": SHUT_DOWN,
    "shelved": SHUT_DOWN,
    "soft-delete": SHUT_DOWN,
}
"""What the hypervisor says of a server in a state; of any other it says nothing."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", gc=False):
    """Something with an id that the journal keeps the current value of."""

    id: str


class Flavor(Record, frozen=True, kw_only=True, tag="flavor"):
    """Sizes as Nova counts them. A server keeps a copy of the one it was made with."""

    name: str
    vcpus: int
    memory_mb: int
    disk_gb: int = 0
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: dict[str, str] = {}
    is_public: bool = True
    projects: tuple[str, ...] = ()
    """The projects that may use a flavor that is not public."""
    description: str | None = None
    created_at_s: int = 0
    aliases: tuple[PciAlias, ...] = ()
    profile: DeviceProfile | None = None
    """What its names of devices meant when a server's copy of it was made."""


class ImageMember(msgspec.Struct, frozen=True, gc=False):
    """A project that an image is shared with. It has the image in its lists once it has accepted it."""

    project: str
    status: Literal["pending", "accepted", "rejected"] = "pending"
    created_at_s: int = 0
    updated_at_s: int = 0


class Image(Record, frozen=True, kw_only=True, tag="image"):
    """What a server is made from. ``properties`` with ``trait:NAME = required`` bind it to hosts. ``content``
    is the name of its file, which is being written while it is ``saving``. An image that an earlier Berth
    made active has no file. ``members`` matter while it is shared.

        queued --(upload begins)--> saving --(all of it is there)--> active <--> deactivated
           ^--(upload fails, or its server died)--/
    """

    name: str | None = None
    status: Literal["queued", "saving", "active", "deactivated"] = "queued"
    visibility: Literal["public", "private", "shared", "community"] = "shared"
    owner: str = ""
    properties: dict[str, str] = {}
    tags: tuple[str, ...] = ()
    disk_format: str | None = None
    container_format: str | None = None
    min_disk_gb: int = 0
    min_memory_mb: int = 0
    is_protected: bool = False
    is_hidden: bool = False
    size: int | None = None
    checksum: str | None = None
    hash_value: str | None = None
    rotation: int | None = None
    """Of a backup that is being made: how many of its kind are kept when it is there."""
    created_at_s: int = 0
    updated_at_s: int = 0
    content: str | None = None
    virtual_size: int | None = None
    members: tuple[ImageMember, ...] = ()

    def find_member(self, project: str | None) -> ImageMember | None:
        """The member that a project is, of an image that is shared."""
        if self.visibility != "shared":
            return None
        return next((member for member in self.members if member.project == project), None)


class Place(msgspec.Struct, frozen=True, gc=False):
    """A host: its root provider, what it is called, and the cell it is in."""

    id: str
    name: str
    cell: str


NEEDS_MAX: Final = 16
"""How many needs a server has at most."""
NEED_GROUPS_MAX: Final = 8
NEED_GROUPS_TOTAL_MAX: Final = 32
"""How many groups one need has at most, and all needs of a server together."""


class NeedGroup(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What one provider is to give for a need. ``held`` is the part of the server's allocations that is there
    for it."""

    name: str
    resources: dict[str, int]
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    held: Held = ()


class Need(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What another service contributes to what a server needs: a port's bandwidth, an accelerator.

    ``held`` is the part of the server's allocations that is there for it. A need of one group says in its own
    fields what it asks for; a need of several has them in ``groups``. The providers of the groups in
    ``same_subtree`` are in one subtree; where it ``isolates``, no two of its groups share a provider.
    ``port`` is the port that it was made for: it is read again before every move. ``numa_policy`` is what the
    port says of how near to its server its devices must be; without it flavor and image say that.
    """

    name: str
    resources: dict[str, int]
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    held: Held = ()
    groups: tuple[NeedGroup, ...] = ()
    same_subtree: tuple[str, ...] = ()
    port: str | None = None
    isolates: bool = False
    numa_policy: NumaPolicy | None = None

    @property
    def parts(self) -> tuple[NeedGroup, ...]:
        """Its groups, however many there are. A port may need nothing: then there are none."""
        if self.groups or not self.resources:
            return self.groups
        return (NeedGroup("", self.resources, self.required, self.forbidden, self.held),)


class Fault(msgspec.Struct, frozen=True, gc=False):
    """``details`` are for those who are told of hosts: of a server that fitted nowhere, which constraint
    removed how many hosts then, the nearest host and the smallest change. ``explained`` is the same for its
    owner, without hosts."""

    message: str
    at_s: int
    code: int = 500
    details: str | None = None
    explained: str | msgspec.UnsetType = msgspec.UNSET


class FoundConflict(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a server and its migration were found to hold when an operation was refused because of it: the
    next request finds it recorded, and proceeds. ``asked`` is the operation that was refused."""

    held: Held
    migration_held: Held = ()
    asked: str
    at_s: int


class Deletion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The request to delete a server while something else is being done to it: that is aborted, and the run
    that deletes the server begins with its end, under the id that is ``run``."""

    run: str
    request_id: str
    project: str
    user: str
    asked_at_s: int
    policy: ConflictPolicy = "fail"
    repeats_merge: bool = True
    """What ``fail`` does with a request that is repeated after a conflict was reported."""
    is_forced: bool = False
    is_soft: bool = False
    """The server can be restored for a while."""
    global_id: str | None = None


class ServerHints(msgspec.Struct, frozen=True, gc=False):
    """The scheduler hints given at creation; they hold for moves, too."""

    same_host: tuple[str, ...] = ()
    different_host: tuple[str, ...] = ()


class GuestAddress(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An address of a server, as its agent has reported it: in which network, and of which interface."""

    network: str
    address: str
    mac: str = ""


class Guest(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What the guest of a server is given, by whatever way its driver has. ``user_data`` is in base64.
    ``hostname`` is None where it follows from the name; ``public_key`` is that of the server's key pair."""

    user_data: str | None = None
    has_config_drive: bool = False
    hostname: str | None = None
    public_key: str | None = None
    partitions_disk: bool = False
    """Nova's diskConfig AUTO: one partition, as large as the disk."""


NO_GUEST: Final = Guest()

UNKNOWN: Final = "unknown"
"""What a server is for a cell that has no record of it: whatever is done to it there harms nothing."""


class Server(Record, frozen=True, kw_only=True, tag="server", rename={"run": "work", "run_count": "works"}):
    """``run`` is the saga run that is under way for it: while there is one no other may begin.
    ``run_count`` counts them. ``migration`` holds another half of its resources."""

    name: str
    project: str
    user: str
    flavor: Flavor
    image: str | None = None
    image_properties: dict[str, str] = {}
    zone: str | None = None
    group: str | None = None
    hints: ServerHints = ServerHints()
    metadata: dict[str, str] = {}
    key_name: str | None = None
    description: str | None = None
    needs: tuple[Need, ...] = ()
    state: VmState = "building"
    task: Task | None = None
    power: int = NO_STATE
    place: Place | None = None
    held: Held = ()
    kept: Held = ()
    """The part of ``held`` that others have added, as an operation found it."""
    generation: int | None = None
    conflict: FoundConflict | None = None
    """What other clients were found to have changed, and was reported, since ``held`` was last written."""
    run: str | None = None
    run_count: int = 0
    migration: str | None = None
    flavor_before: Flavor | None = None
    """While a resize waits for its confirmation."""
    state_before: VmState | None = None
    """What it was before the resize, and will be again after it."""
    fault: Fault | None = None
    deletion: Deletion | None = None
    """What follows as soon as ``run`` has ended."""
    outdated: str | None = None
    """Where it is for its cell, in words, where that is not ``place``: one of both was restored from an older
    backup."""
    is_locked: bool = False
    locked_by: Literal["owner", "admin"] | None = None
    """None for a lock from before this was recorded: the owner's."""
    locked_reason: str | None = None
    created_at_s: int = 0
    updated_at_s: int = 0
    launched_at_s: int | None = None
    addresses: tuple[GuestAddress, ...] = ()
    guest: Guest = NO_GUEST
    tags: tuple[str, ...] = ()
    access_ipv4: str = ""
    access_ipv6: str = ""
    """Addresses that its owner has noted here."""

    @property
    def ports(self) -> tuple[str, ...]:
        """The ports that it has."""
        return tuple([need.port for need in self.needs if need.port is not None])


STATUS: Final[dict[str, str]] = {
    "building": "BUILD",
    "active": "ACTIVE",
    "stopped": "SHUTOFF",
    "paused": "PAUSED",
    "suspended": "SUSPENDED",
    "rescued": "RESCUE",
    "resized": "VERIFY_RESIZE",
    "shelved": "SHELVED",
    "shelved_offloaded": "SHELVED_OFFLOADED",
    "soft-delete": "SOFT_DELETED",
    "error": "ERROR",
}
"""What Nova calls the states of a server."""
_STATUS_DURING: Final[dict[Task, str]] = {
    "resize_prep": "RESIZE",
    "resize_reverting": "REVERT_RESIZE",
    "migrating": "MIGRATING",
    "rebuilding": "REBUILD",
}
_STATUS_WHILE_ACTIVE: Final[dict[Task, str]] = {"rebooting": "REBOOT", "rebooting_hard": "HARD_REBOOT"}


STATUSES: Final = (*STATUS.values(), *_STATUS_DURING.values(), *_STATUS_WHILE_ACTIVE.values())
"""All that a server can be shown with."""


def status_of(server: Server) -> str:
    """The state of a server in one word, as Nova shows it."""
    if server.task is None:
        return STATUS[server.state]
    while_active = _STATUS_WHILE_ACTIVE if server.state == "active" else {}
    return (_STATUS_DURING | while_active).get(server.task) or STATUS[server.state]


class Migration(Record, frozen=True, kw_only=True, tag="migration"):
    """A move; as a consumer it holds (``held``) what the server held at the source and does not use at the
    destination."""

    number: int
    server: str
    type: MigrationKind
    status: MigrationStatus
    source: Place
    dest: Place
    flavor_before: Flavor
    flavor_after: Flavor
    project: str
    user: str
    held: Held = ()
    generation: int | None = None
    shared: Held = ()
    """What the server held on sharing providers and still holds itself. With ``held`` it is all that the
    server held at the source."""
    kept: Held = ()
    """The part of both that others had added."""
    needs: tuple[Need, ...] = ()
    """The server's, as they were met at the source."""
    created_at_s: int = 0
    updated_at_s: int = 0


class KeyPair(Record, frozen=True, kw_only=True, tag="key_pair"):
    """A public key of a user, by name. A server that is created with it keeps a copy."""

    name: str
    user: str
    public_key: str
    fingerprint: str
    type: Literal["ssh", "x509"] = "ssh"
    number: int = 0
    created_at_s: int = 0


def key_pair_id(user: str, name: str) -> str:
    return f"{user}/{name}"


class Counter(Record, frozen=True, kw_only=True, tag="counter"):
    """The last number that was given to something of a kind."""

    value: int


class QuotaSet(Record, frozen=True, kw_only=True, tag="quota_set"):
    """Limits that were set for a project or for the class of all projects; see ``quotas``."""

    limits: dict[str, int]


class ActionEvent(msgspec.Struct, frozen=True, gc=False):
    """A step of an action. ``result`` is None while it is in progress."""

    name: str
    started_at_s: int
    finished_at_s: int | None = None
    result: Literal["Success", "Error"] | None = None
    host: str | None = None
    details: str | None = None


class ActionProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How far an operation is, or was when it ended. ``step`` is the step at hand, at ``host`` (None: in
    Placement), since ``since_s``; ``deadline_s`` is when it should have ended, 0 if that is not known. Both
    are times of the region's clock: a conductor's may be wrong."""

    step: str | None = None
    host: str | None = None
    since_s: int = 0
    deadline_s: int = 0
    attempt: int = 1
    source: str | None = None
    destination: str | None = None


NOT_BEGUN: Final = ActionProgress()


class Action(Record, frozen=True, kw_only=True, tag="action"):
    """What was requested for a server, and its progress, step by step. ``id`` is the saga run's. ``state`` is
    None in records from before it was recorded."""

    server: str
    name: str
    request_id: str
    project: str
    user: str
    started_at_s: int
    updated_at_s: int
    message: str | None = None
    events: tuple[ActionEvent, ...] = ()
    seen: int = 0
    """The version of the run that this is about."""
    state: Literal["running", "done", "failed"] | None = None
    progress: ActionProgress = NOT_BEGUN

    @property
    def outcome(self) -> Literal["running", "done", "failed"]:
        """Its state, also where that was not recorded."""
        return self.state or ("done" if self.message is None else "failed")


class Host(Record, frozen=True, kw_only=True, tag="host"):
    """A host with an agent. ``id`` is its root provider; whether it is down or disabled is the ledger's.
    ``is_silent``: its agent has sent no heartbeat in time. A host that is forced down is down either way."""

    number: int
    name: str
    cell: str
    driver: str = "sim"
    is_silent: bool = False
    is_forced_down: bool = False
    registered_at_s: int = 0
    updated_at_s: int = 0
    complaints: tuple[str, ...] = ()
    """What could not be applied of its agent's report, and why."""
    unit_classes: UnitClasses = ()
    """The resource classes of which its agent names every unit: a server that holds any has an assignment."""
    units_gone: tuple[str, ...] = ()
    """Units that are assigned, and that its agent does not report any more."""
    heard_at_s: int = 0
    """When its last heartbeat came, of a host that is down; when it was last marked up, of any other. 0: not
    known."""


class UnknownServer(Record, frozen=True, kw_only=True, tag="unknown_server"):
    """A server that a cell has on hosts, and that has no record here: the region was restored from a backup
    that is older than the server. ``hosts`` are names. ``sheet`` and ``last`` are those of the cell's
    ``Instance``."""

    cell: str
    hosts: tuple[str, ...]
    sheet: str = ""
    last: int = 0


SILENT_AFTER_S: Final = 180
"""After how long a conductor that has said nothing is silent. It says once a minute that it is at work, and
the region writes that down within another."""


class CellStatus(Record, frozen=True, kw_only=True, tag="cell_status"):
    """How a region reaches a cell; ``id`` is the cell's name. ``since_s``: since when its database can, or
    cannot, be reached; ``text`` says why not. ``heard_at_s``: when the region last saw that its conductor had
    said that it is at work, ``sign_s`` what the conductor's clock said then; 0: never. See decision 028.
    ``format`` is that of its journal, as far as it is known."""

    is_reachable: bool = True
    text: str | None = None
    since_s: int = 0
    heard_at_s: int = 0
    sign_s: int = 0
    format: int = 0

    def is_silent(self, now_s: int) -> bool:
        """Whether its conductor has not been heard of for too long. A cell that has just come within reach
        may not have been looked at since its conductor's first sign."""
        return now_s - max(self.heard_at_s, self.since_s) > SILENT_AFTER_S


class Aggregate(Record, frozen=True, kw_only=True, tag="aggregate"):
    """A set of hosts as Nova has it; ``id`` is the ledger's aggregate that the hosts are in."""

    number: int
    name: str
    zone: str | None = None
    metadata: dict[str, str] = {}
    created_at_s: int = 0
    updated_at_s: int = 0


class DeletedServer(Record, frozen=True, kw_only=True, tag="deleted_server"):
    """A server that is gone, as it was: for those who ask what there was. It is kept for a while."""

    server: Server
    deleted_at_s: int


class RevokedToken(Record, frozen=True, kw_only=True, tag="revoked_token"):
    """A token that was revoked before it expires. ``id`` is its audit id, from which no token can be made."""

    user: str
    expires_at_s: int
