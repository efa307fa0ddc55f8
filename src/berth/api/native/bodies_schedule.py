"""What the scheduler is sent: what is asked for, in whichever form, and where it should go."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from berth.api.native.bodies import Name, Uuid
from berth.model.placement import AMOUNT_MAX

COUNT_MAX: Final = 1_000
"""How many members one request may place."""

ALTERNATES_MAX: Final = 20
_GROUPS_MAX: Final = 64
_NAMES_MAX: Final = 100
_SPECS_MAX: Final = 200
_HOSTS_MAX: Final = 1_000
_TOKEN_MAX: Final = 4 << 20

_Word = Annotated[str, Meta(min_length=1, max_length=255)]
_Value = Annotated[str, Meta(max_length=255)]
_Names = Annotated[tuple[_Word, ...], Meta(max_length=_NAMES_MAX)]
_Hosts = Annotated[tuple[_Word, ...], Meta(max_length=_HOSTS_MAX)]
_Consumers = Annotated[tuple[Uuid, ...], Meta(max_length=_NAMES_MAX)]
Suffix = Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}\\Z")]
Resources = Annotated[
    dict[_Word, Annotated[int, Meta(ge=1, le=AMOUNT_MAX)]],
    Meta(max_length=_NAMES_MAX, description="Amounts by the name of the resource class."),
]
Aggregates = Annotated[
    tuple[Annotated[tuple[_Word, ...], Meta(min_length=1, max_length=_NAMES_MAX)], ...],
    Meta(max_length=_NAMES_MAX, description="Lists of aggregates: in one of each list."),
]
Count = Annotated[int, Meta(ge=1, le=COUNT_MAX)]
LeastCount = Annotated[
    int, Meta(ge=1, le=COUNT_MAX, description="At least so many, or none at all; max_count if left out.")
]
Seed = Annotated[
    int, Meta(ge=0, le=2**63 - 1, description="With the same seed the same is chosen from the same state.")
]
Token = Annotated[str, Meta(max_length=_TOKEN_MAX, description="What a dry run gave out.")]
ForcedHost = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        description="The only host considered; no filter is asked about it, the ledger is.",
    ),
]


class _Body(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    pass


class Part(_Body, frozen=True, kw_only=True):
    """Resources to be found on one provider, and what that provider must be."""

    resources: Resources = {}
    required: _Names = ()
    forbidden: _Names = ()
    member_of: Aggregates = ()
    not_member_of: _Names = ()
    in_tree: Uuid | None = None


class Flavor(_Body, frozen=True, kw_only=True):
    """As Nova has it: ``ram`` in MB, ``disk``, ``ephemeral`` in GB, ``swap`` in MB."""

    vcpus: Annotated[int, Meta(ge=0, le=AMOUNT_MAX)]
    ram: Annotated[int, Meta(ge=0, le=AMOUNT_MAX)]
    disk: Annotated[int, Meta(ge=0, le=AMOUNT_MAX)] = 0
    ephemeral: Annotated[int, Meta(ge=0, le=AMOUNT_MAX)] = 0
    swap: Annotated[int, Meta(ge=0, le=AMOUNT_MAX)] = 0
    extra_specs: Annotated[dict[_Word, _Value], Meta(max_length=_SPECS_MAX)] = {}


class Image(_Body, frozen=True, kw_only=True):
    properties: Annotated[dict[_Word, _Value], Meta(max_length=_SPECS_MAX)] = {}


class Where(_Body, frozen=True, kw_only=True):
    """Hosts by name or uuid; consumers by uuid."""

    same_host: _Consumers = ()
    different_host: _Consumers = ()
    host_names: Annotated[_Names, Meta(description="Patterns with * and ?, of which one must match.")] = ()
    ignore_hosts: _Hosts = ()
    forced_host: ForcedHost | None = None


class Ask(Part, frozen=True, kw_only=True):
    """What each member needs: the fields of a part for what may come from several providers of a host,
    ``parts`` by suffix for what must come from one; or a ``flavor`` (and an ``image``) in place of both.
    ``group`` is the group that members are in, or come into; ``zone`` is the name of an aggregate of that
    kind."""

    parts: Annotated[dict[Suffix, Part], Meta(max_length=_GROUPS_MAX)] = {}
    group_policy: Literal["none", "isolate"] = "none"
    same_subtree: Annotated[
        tuple[Annotated[tuple[Suffix, ...], Meta(max_length=_GROUPS_MAX)], ...], Meta(max_length=_GROUPS_MAX)
    ] = ()
    flavor: Flavor | None = None
    image: Image | None = None
    group: Uuid | None = None
    zone: Name | None = None
    metadata: Annotated[
        dict[_Word, _Value],
        Meta(max_length=_NAMES_MAX, description="What an aggregate of the host must say."),
    ] = {}
    hints: Where = Where()


class Schedule(Ask, frozen=True, kw_only=True):
    """With a ``token`` of a dry run that very plan is claimed, and nothing else may be given with it."""

    min_count: LeastCount | None = None
    max_count: Count = 1
    consumers: Annotated[
        tuple[Uuid, ...],
        Meta(
            max_length=COUNT_MAX, description="The uuids of the members, max_count of them; made if left out."
        ),
    ] = ()
    project_id: _Word | None = None
    user_id: _Word | None = None
    consumer_type: Annotated[str, Meta(pattern="^[A-Z0-9_]{1,255}\\Z")] = "WORKLOAD"
    alternates: Annotated[int, Meta(ge=0, le=ALTERNATES_MAX)] = 0
    seed: Seed | None = None
    dry_run: bool = False
    explain: bool = False
    token: Token | None = None


class Explain(Ask, frozen=True, kw_only=True):
    """``hosts`` are told about one by one."""

    count: Count = 1
    hosts: Annotated[tuple[_Word, ...], Meta(max_length=20)] = ()
