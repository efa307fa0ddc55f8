"""The bodies of /berth/v1/schedule, /explain and /capacity: what is asked for, and where it should go. Bodies
become requests here, and nowhere else."""

import re
from collections.abc import Iterable
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from berth.api.kernel.images import fetch_images, find_images
from berth.api.kernel.rejections import berth_problem
from berth.api.native.calls import NativeCall, bad_body
from berth.api.native.fields import UUID, GivenName, GivenUuid, NativeBody, read_consumers
from berth.model.commands import SCHEDULE
from berth.model.counts import count
from berth.model.ids import AggregateId, ConsumerId, GroupId, ProviderId
from berth.model.placement import AMOUNT_MAX
from berth.model.rejections import (
    FlavorNotFound,
    GroupNameAmbiguous,
    GroupNotFound,
    ImageNotFound,
    Rejection,
    ServerNotFound,
    SpecInvalid,
    UnknownConsumer,
)
from berth.model.scheduling import UNSUFFIXED, CandidatesRequest, Hints, RequestGroup, ScheduleRequest
from berth.model.servers import Flavor, Image, Server
from berth.sagas.requests import ask_place
from berth.scheduler.devices import DeviceCatalog
from berth.scheduler.flavors import FlavorAsk, FlavorSize, check_flavor
from berth.scheduler.hosts import wrong_comparison
from berth.view import View

T = TypeVar("T")

# -- bodies -------------------------------------------------------------------------------------

COUNT_MAX: Final = 1_000
"""How many members one request may place."""
ALTERNATES_MAX: Final = 20
_GROUPS_MAX: Final = 64
_NAMES_MAX: Final = 100
_SPECS_MAX: Final = 200
_HOSTS_MAX: Final = 1_000
_AMBIGUOUS_SHOWN_MAX: Final = 5
_TOKEN_MAX: Final = 4 << 20
_Word = Annotated[str, Meta(min_length=1, max_length=255)]
_Value = Annotated[str, Meta(max_length=255)]
_Names = Annotated[tuple[_Word, ...], Meta(max_length=_NAMES_MAX)]
_Hosts = Annotated[tuple[_Word, ...], Meta(max_length=_HOSTS_MAX)]
_Consumers = Annotated[tuple[GivenUuid, ...], Meta(max_length=_NAMES_MAX)]
Suffix = Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}\\Z")]
AskedResources = Annotated[
    dict[_Word, Annotated[int, Meta(ge=1, le=AMOUNT_MAX)]],
    Meta(max_length=_NAMES_MAX, description="Amounts by the name of the resource class."),
]
AskedAggregates = Annotated[
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
PlanText = Annotated[str, Meta(max_length=_TOKEN_MAX, description="What a dry run gave out.")]
ForcedHost = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        description="The only host considered; no filter is asked about it, the ledger is.",
    ),
]


GivenGroup = Annotated[
    str, Meta(min_length=1, max_length=255, description="The uuid or the name of a group.")
]


class Part(NativeBody, frozen=True, kw_only=True):
    """Resources to be found on one provider, and what that provider must be."""

    resources: AskedResources = msgspec.field(default_factory=dict)
    required: Annotated[_Names, Meta(description="Traits that it must have.")] = ()
    forbidden: Annotated[_Names, Meta(description="Traits that it must not have.")] = ()
    member_of: AskedAggregates = ()
    not_member_of: Annotated[_Names, Meta(description="Aggregates that it must not be in.")] = ()
    in_tree: GivenUuid | None = None


class AskedFlavor(NativeBody, frozen=True, kw_only=True):
    """As Nova has it: ``ram`` in MB, ``disk``, ``ephemeral`` in GB, ``swap`` in MB."""

    vcpus: Annotated[int, Meta(ge=0, le=AMOUNT_MAX, description="How many cpus.")]
    ram: Annotated[int, Meta(ge=0, le=AMOUNT_MAX)]
    disk: Annotated[int, Meta(ge=0, le=AMOUNT_MAX)] = 0
    ephemeral: Annotated[int, Meta(ge=0, le=AMOUNT_MAX)] = 0
    swap: Annotated[int, Meta(ge=0, le=AMOUNT_MAX)] = 0
    extra_specs: Annotated[
        dict[_Word, _Value], Meta(max_length=_SPECS_MAX, description="Its extra specs.")
    ] = msgspec.field(default_factory=dict)


class AskedImage(NativeBody, frozen=True, kw_only=True):
    properties: Annotated[dict[_Word, _Value], Meta(max_length=_SPECS_MAX, description="Its properties.")] = (
        msgspec.field(default_factory=dict)
    )


class Where(NativeBody, frozen=True, kw_only=True):
    """Hosts by name or uuid; consumers by uuid."""

    same_host: Annotated[_Consumers, Meta(description="Consumers whose host it must share.")] = ()
    different_host: Annotated[_Consumers, Meta(description="Consumers whose hosts it must avoid.")] = ()
    host_names: Annotated[_Names, Meta(description="Patterns with * and ?, of which one must match.")] = ()
    ignore_hosts: Annotated[_Hosts, Meta(description="Hosts that are not considered.")] = ()
    forced_host: ForcedHost | None = None


class Ask(Part, frozen=True, kw_only=True):
    """What each member needs: the fields of a part for what may come from several providers of a host,
    ``parts`` by suffix for what must come from one; or a ``flavor`` (and an ``image``) in place of both, each
    as it is or by its name or id in this region.
    ``group`` is the group that members are in, or come into; ``zone`` is the name of an aggregate of that
    kind."""

    parts: Annotated[
        dict[Suffix, Part],
        Meta(max_length=_GROUPS_MAX, description="By suffix: what must come from one provider each."),
    ] = msgspec.field(default_factory=dict)
    group_policy: Annotated[
        Literal["none", "isolate"],
        Meta(description="`isolate`: each part comes from a provider of its own."),
    ] = "none"
    same_subtree: Annotated[
        tuple[Annotated[tuple[Suffix, ...], Meta(max_length=_GROUPS_MAX)], ...],
        Meta(max_length=_GROUPS_MAX, description="Suffixes of parts whose providers are in one subtree."),
    ] = ()
    flavor: Annotated[
        AskedFlavor | _Word | None,
        Meta(description="A flavor as it is, or its name or id, in place of amounts."),
    ] = None
    image: Annotated[
        AskedImage | _Word | None, Meta(description="An image as it is, or its name or id, beside a flavor.")
    ] = None
    group: GivenGroup | None = None
    zone: GivenName | None = None
    metadata: Annotated[
        dict[_Word, _Value],
        Meta(max_length=_NAMES_MAX, description="What an aggregate of the host must say."),
    ] = msgspec.field(default_factory=dict)
    hints: Where = Where()


class NewSchedule(Ask, frozen=True, kw_only=True):
    """With a ``token`` of a dry run exactly that plan is claimed, and nothing else may be given with it."""

    min_count: LeastCount | None = None
    max_count: Annotated[Count, Meta(description="As many as fit, up to so many.")] = 1
    consumers: Annotated[
        tuple[GivenUuid, ...],
        Meta(
            max_length=COUNT_MAX, description="The uuids of the members, max_count of them; made if left out."
        ),
    ] = ()
    project_id: Annotated[_Word | None, Meta(description="Whose they are; the caller's if left out.")] = None
    user_id: Annotated[_Word | None, Meta(description="Whose they are; the caller if left out.")] = None
    consumer_type: Annotated[
        str, Meta(pattern="^[A-Z0-9_]{1,255}\\Z", description="The type of the consumers.")
    ] = "WORKLOAD"
    alternates: Annotated[
        int, Meta(ge=0, le=ALTERNATES_MAX, description="How many other places each member is given with it.")
    ] = 0
    seed: Seed | None = None
    dry_run: Annotated[bool, Meta(description="Claim nothing, and answer with a token of the plan.")] = False
    explain: Annotated[bool, Meta(description="A refusal because nothing fits has an explanation.")] = False
    token: PlanText | None = None


class Explain(Ask, frozen=True, kw_only=True):
    """``hosts`` are explained one by one. ``server``: what this server would need now, in place of everything
    else: with its flavor, image, needs, group, zone and hints."""

    server: GivenUuid | None = None
    count: Annotated[Count, Meta(description="How many are to be placed.")] = 1
    hosts: Annotated[tuple[_Word, ...], Meta(max_length=20)] = ()


# -- names --------------------------------------------------------------------------------------

A = TypeVar("A", bound=Ask)


async def resolve_names(call: NativeCall, asked: A) -> A:
    """The body with the flavor and the image that it names, and the uuid of the group."""
    if not isinstance(asked.flavor, str) and not isinstance(asked.image, str) and not _is_named(asked.group):
        return asked
    if isinstance(asked.image, str):
        await fetch_images(call.services.glance, call, (asked.image,), by_name=True)
    return await call.read(lambda view: _resolve(view, call, asked))


def _resolve(view: View, call: NativeCall, asked: A) -> A | Rejection:
    flavor, image = asked.flavor, asked.image
    if isinstance(flavor, str):
        found = _find_flavor(view, call, flavor)
        if isinstance(found, Rejection):
            return found
        flavor = AskedFlavor(
            vcpus=found.vcpus,
            ram=found.memory_mb,
            disk=found.disk_gb,
            ephemeral=found.ephemeral_gb,
            swap=found.swap_mb,
            extra_specs=found.extra_specs,
        )
    if isinstance(image, str):
        known = _find_image(view, call, image)
        if isinstance(known, Rejection):
            return known
        image = AskedImage(properties=known.properties)
    group = asked.group
    if group is not None and _is_named(group):
        identified = _find_group(view, call, group)
        if isinstance(identified, Rejection):
            return identified
        group = identified
    return msgspec.structs.replace(asked, flavor=flavor, image=image, group=group)


def _is_named(group: str | None) -> bool:
    """Whether a group is given by its name."""
    return group is not None and re.match(UUID, group) is None


def _find_flavor(view: View, call: NativeCall, named: str) -> Flavor | FlavorNotFound:
    by_id = view.records.get(Flavor, named)
    found = view.records.find(Flavor, "name", named) if by_id is None else [by_id]
    return next(filter(call.access.may_use_flavor, found), FlavorNotFound(named))


def _find_image(view: View, call: NativeCall, named: str) -> Image | ImageNotFound:
    return next(iter(find_images(call, view, named, by_name=True)), ImageNotFound(named))


def _find_group(view: View, call: NativeCall, named: str) -> GroupId | Rejection:
    """A group of this name that is there for the caller."""
    access = call.access
    # Names of groups are not unique and rarely looked for: there is no index of them.
    view.steps.take(len(view.groups.records))
    found = [
        id
        for id, record in view.groups.records.items()
        if record.group.name == named and (access.sees_hosts or access.sees(record.group.project))
    ]
    if len(found) > 1:
        return GroupNameAmbiguous(named, tuple(sorted(found)[:_AMBIGUOUS_SHOWN_MAX]))
    return found[0] if found else GroupNotFound(GroupId(named))


# -- requests -----------------------------------------------------------------------------------


def make_schedule_request(call: NativeCall, asked: NewSchedule) -> ScheduleRequest:
    least = asked.max_count if asked.min_count is None else asked.min_count
    if least > asked.max_count:
        raise bad_body(f"min_count is {least} and max_count {asked.max_count}: it must not be less")
    if asked.consumers and len(asked.consumers) != asked.max_count:
        given = count(len(asked.consumers), "consumer is", "consumers are")
        raise bad_body(f"{given} named, and max_count is {asked.max_count}")
    if len(set(asked.consumers)) < len(asked.consumers):
        raise bad_body("a consumer is named twice")
    named = asked.consumers or tuple(call.services.ids.uuid() for _ in range(asked.max_count))
    caller = call.caller
    return _make_request(
        asked,
        call.services.scheduler.devices,
        members=read_consumers(named),
        at_least=least,
        project=asked.project_id or caller.project_id or "",
        user=asked.user_id or caller.user_id or "",
        consumer_type=asked.consumer_type,
        alternates=asked.alternates,
    )


def make_explain_request(call: NativeCall, asked: Explain) -> ScheduleRequest:
    members = tuple(ConsumerId(call.services.ids.uuid()) for _ in range(asked.count))
    devices, project = call.services.scheduler.devices, call.caller.project_id or ""
    return _make_request(asked, devices, members=members, at_least=asked.count, project=project)


def make_server_request(view: View, call: NativeCall, id: str) -> ScheduleRequest | Rejection:
    """What a server would need now, wherever it is."""
    server = view.records.get(Server, id.lower())
    if server is None or not (call.access.sees_hosts or call.access.sees(server.project)):
        return ServerNotFound(id)
    consumer = view.consumers.get(ConsumerId(server.id))
    generation = None if consumer is None else consumer.consumer.generation
    return ask_place(view, server, call.services.scheduler.devices, alternates=0, generation=generation)


def check_explain(asked: Explain) -> None:
    """Refuse what does not go together."""
    if asked.server is not None and asked != Explain(server=asked.server, hosts=asked.hosts):
        raise bad_body("a server says itself what it needs: leave out everything but hosts beside it")


_OF_OPERATORS: Final = ("hosts", "in_tree", "member_of", "not_member_of", "metadata")
_HINTS_OF_OPERATORS: Final = ("host_names", "ignore_hosts", "forced_host")


def find_operators_field(asked: Explain) -> str | None:
    """The first field of a body that names hosts or aggregates: that is for those who are told of them."""
    parts = [asked, *asked.parts.values()]
    for part in parts:
        for name in _OF_OPERATORS:
            if getattr(part, name, None):
                return name
    return next((f"hints.{name}" for name in _HINTS_OF_OPERATORS if getattr(asked.hints, name)), None)


def find_foreign(view: View, call: NativeCall, asked: Explain) -> Rejection | None:
    """The first group or server of another project that a body names: it is not there for the caller."""
    if asked.group is not None:
        group = view.groups.records.get(GroupId(asked.group.lower()))
        if group is None or not call.access.sees(group.group.project):
            return GroupNotFound(GroupId(asked.group.lower()))
    for hint in ("same_host", "different_host"):
        for id in read_consumers(getattr(asked.hints, hint)):
            server = view.records.get(Server, id)
            if server is None or not call.access.sees(server.project):
                return UnknownConsumer(hint, id)
    return None


def _make_request(
    asked: Ask,
    devices: DeviceCatalog,
    members: tuple[ConsumerId, ...],
    at_least: int,
    project: str = "",
    user: str = "",
    consumer_type: str | None = None,
    alternates: int = 0,
) -> ScheduleRequest:
    needs = _read_needs(asked, devices)
    hints = asked.hints
    return ScheduleRequest(
        ask=needs.ask,
        otherwise=needs.otherwise,
        members=members,
        at_least=at_least,
        project=project,
        user=user,
        consumer_type=consumer_type,
        group=None if asked.group is None else GroupId(asked.group.lower()),
        zone=asked.zone,
        metadata=_read_metadata(needs.metadata, asked.metadata),
        image=needs.image,
        hints=Hints(
            same_host=read_consumers(hints.same_host),
            different_host=read_consumers(hints.different_host),
            host_names=hints.host_names,
            ignore_hosts=frozenset(hints.ignore_hosts),
            forced_host=hints.forced_host,
        ),
        alternates=alternates,
        made_by=SCHEDULE,
    )


def _read_metadata(
    of_flavor: tuple[tuple[str, str], ...], given: dict[str, str]
) -> tuple[tuple[str, str], ...]:
    """What the metadata of aggregates must be, for the flavor and for the request."""
    for key, value in given.items():
        wrong = wrong_comparison(value)
        if wrong is not None:
            raise berth_problem(SpecInvalid(f"metadata {key}", value, wrong))
    return tuple(sorted({*of_flavor, *given.items()}))


def _read_needs(asked: Ask, devices: DeviceCatalog) -> FlavorAsk:
    """What each member needs, and what a flavor and an image say beside that."""
    assert not isinstance(asked.flavor, str), "names were resolved"
    assert not isinstance(asked.image, str), "names were resolved"
    if asked.flavor is not None:
        if asked.resources or asked.parts:
            raise bad_body("a flavor says which resources are needed: leave out resources and parts")
        given = asked.flavor
        flavor = FlavorSize(
            vcpus=given.vcpus,
            memory_mb=given.ram,
            disk_gb=given.disk,
            ephemeral_gb=given.ephemeral,
            swap_mb=given.swap,
            extra_specs=given.extra_specs,
        )
        needs = check_flavor(flavor, {} if asked.image is None else asked.image.properties, devices)
        if isinstance(needs, Rejection):
            raise berth_problem(needs)
        return needs.map_asks(lambda ask: _join(_at_host(ask, asked), asked))
    if asked.image is not None:
        raise bad_body("an image goes with a flavor")
    if not asked.resources and (asked.required or asked.forbidden or asked.in_tree is not None):
        raise bad_body(
            "required, forbidden and in_tree are about resources: give them with these, or in parts"
        )
    parts = [_make_spanning_group(asked)] if asked.resources else []
    parts += [_make_group(suffix, part) for suffix, part in asked.parts.items()]
    if not any(part.resources for part in parts):
        raise bad_body("nothing is asked for: give resources, parts with resources, or a flavor")
    known = {part.suffix for part in parts}
    unknown = sorted({suffix for suffixes in asked.same_subtree for suffix in suffixes} - known)
    if unknown:
        raise bad_body(f"same_subtree names {', '.join(unknown)}, which is no part of the request")
    ask = CandidatesRequest(
        groups=tuple(parts),
        isolate=asked.group_policy == "isolate",
        same_subtrees=tuple(frozenset(suffixes) for suffixes in asked.same_subtree),
    )
    return FlavorAsk(_at_host(ask, asked), ())


def _at_host(ask: CandidatesRequest, asked: Ask) -> CandidatesRequest:
    """Aggregates that a request names beside its parts are those of the host: a pool that the host uses need
    not be in them. Placement itself looks at the pool."""
    return msgspec.structs.replace(
        ask,
        root_member_of=_require_distinct(asked.member_of),
        root_not_member_of=frozenset(map(AggregateId, asked.not_member_of)),
    )


def _join(ask: CandidatesRequest, asked: Ask) -> CandidatesRequest:
    """A flavor's needs, and what the request itself requires beside it."""
    beside = _make_spanning_group(asked)
    replace = msgspec.structs.replace
    groups = []
    for group in ask.groups:
        if group.suffix in ask.guest_groups or group.suffix == UNSUFFIXED:
            group = replace(group, forbidden=group.forbidden | beside.forbidden, in_tree=beside.in_tree)
        if group.suffix == UNSUFFIXED and not ask.guest_groups:
            group = replace(group, required=_unite(group.required, beside.required))
        groups.append(group)
    joined = replace(ask, groups=tuple(groups))
    if not ask.guest_groups:
        return joined
    return replace(
        joined,
        guest_required=_unite(ask.guest_required, beside.required),
        root_forbidden=ask.root_forbidden | beside.forbidden,
    )


def _unite(one: tuple[T, ...], other: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(one + other))


def _make_spanning_group(asked: Ask) -> RequestGroup:
    """What may come from several providers of a host. The aggregates beside it are the host's."""
    return msgspec.structs.replace(_make_group(UNSUFFIXED, asked), member_of=(), not_member_of=frozenset())


def _make_group(suffix: str, part: Part) -> RequestGroup:
    return RequestGroup(
        suffix=suffix,
        resources=tuple(part.resources.items()),
        required=tuple((name,) for name in dict.fromkeys(part.required)),
        forbidden=frozenset(part.forbidden),
        member_of=_require_distinct(part.member_of),
        not_member_of=frozenset(map(AggregateId, part.not_member_of)),
        in_tree=None if part.in_tree is None else ProviderId(part.in_tree.lower()),
    )


def _require_distinct(lists: Iterable[Iterable[str]]) -> tuple[tuple[AggregateId, ...], ...]:
    """Each choice of aggregates once, and each aggregate in it once: a repetition asks for nothing more, and
    costs as much again."""
    choices = (tuple(dict.fromkeys(map(AggregateId, ids))) for ids in lists)
    return tuple({frozenset(choice): choice for choice in choices}.values())
