"""Needs as requests send them and answers show them, in every API that takes them.

A struct says what each part may be; ``object_to_need`` says what is wrong with parts that do not go together.
The command line checks files with them: nothing of the server is imported here.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from berth.model.placement import AMOUNT_MAX
from berth.model.servers import NEED_GROUPS_MAX, NEEDS_MAX, Held, Need, NeedGroup

RULE: Final = "berth:needs:create"
"""Who may give a server needs while it is created. It can claim by them what no flavor gives."""
RULE_TO_SHOW: Final = "berth:needs:list"

# -- what is sent -------------------------------------------------------------------------------

_RESOURCES_MAX: Final = 20
_TRAITS_MAX: Final = 50
_Class = Annotated[str, Meta(min_length=1, max_length=255, description="The name of a resource class.")]
_Trait = Annotated[str, Meta(min_length=1, max_length=255, description="The name of a trait.")]
_Traits = Annotated[tuple[_Trait, ...], Meta(max_length=_TRAITS_MAX)]
_Required = Annotated[_Traits, Meta(description="Traits that the provider must have.")]
_Forbidden = Annotated[_Traits, Meta(description="Traits that the provider must not have.")]
_AMOUNTS: Final = "Amounts by the name of the resource class."
_Amount = Annotated[int, Meta(ge=1, le=AMOUNT_MAX)]
_Resources = dict[_Class, _Amount]
_NAME: Final = "^[a-zA-Z0-9_-]{1,64}\\Z"
NeedName = Annotated[
    str,
    Meta(
        pattern=_NAME,
        description="1 to 64 letters, digits, `_` or `-`.",
        examples=["port-1"],
    ),
]


class NeedGroupBody(
    msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True
):
    """Resources that one provider of the server's host is to give, with the traits that it must have and must
    not have."""

    name: NeedName
    resources: Annotated[_Resources, Meta(min_length=1, max_length=_RESOURCES_MAX, description=_AMOUNTS)]
    required: _Required = ()
    forbidden: _Forbidden = ()


class NeedBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True):
    """A need of one group has its resources and traits here; a need of several has them in ``groups``. The
    providers of the groups that ``same_subtree`` names are in one subtree of the host: one of them is the
    others' ancestor, or the same. With the group policy ``isolate`` each group of the need has a provider of
    its own."""

    resources: Annotated[_Resources, Meta(max_length=_RESOURCES_MAX, description=_AMOUNTS)] = {}
    required: _Required = ()
    forbidden: _Forbidden = ()
    groups: Annotated[
        tuple[NeedGroupBody, ...], Meta(max_length=NEED_GROUPS_MAX, description="The groups of the need.")
    ] = ()
    same_subtree: Annotated[
        tuple[NeedName, ...],
        Meta(max_length=NEED_GROUPS_MAX, description="Groups whose providers are in one subtree."),
    ] = ()
    group_policy: Annotated[
        Literal["none", "isolate"],
        Meta(description="`isolate`: each group has a provider of its own."),
    ] = "none"


class NamedNeedBody(NeedBody, frozen=True, kw_only=True):
    """A need of a server, or of every node of a node group, that is to be created."""

    name: NeedName


NeedBodies = Annotated[tuple[NamedNeedBody, ...], Meta(max_length=NEEDS_MAX)]


def is_need_name(text: str) -> bool:
    return re.match(_NAME, text) is not None


def object_to_need(body: NeedBody) -> str | None:
    """What is wrong with a need as a whole, as a clause; None if nothing is."""
    if bool(body.groups) == bool(body.resources):
        both = "resources and groups are both given" if body.groups else "neither resources nor groups"
        return f"{both}: a need of one group has resources, a need of several has groups"
    if body.groups and (body.required or body.forbidden):
        return "required and forbidden stand beside groups: give each group its own"
    if body.resources and body.group_policy != "none":
        return "group_policy is given without groups: leave it out"
    names = [group.name for group in body.groups]
    unknown = next((name for name in body.same_subtree if name not in names), None)
    if unknown is not None:
        return f"same_subtree names {unknown}, which is no group of the need"
    parts: tuple[NeedBody | NeedGroupBody, ...] = (body, *body.groups)
    return (
        _find_twice("groups has", names)
        or _find_twice("same_subtree names", body.same_subtree)
        or next(filter(None, map(_find_contradiction, parts)), None)
    )


def object_to_needs(bodies: Iterable[NamedNeedBody]) -> str | None:
    """What is wrong with the needs of a server, as a clause; None if nothing is."""
    bodies = tuple(bodies)
    twice = _find_twice("the name of a need is", [body.name for body in bodies])
    wrong = ((body.name, object_to_need(body)) for body in bodies)
    return twice or next((f"need {name}: {why}" for name, why in wrong if why), None)


def _find_twice(where: str, names: Iterable[str]) -> str | None:
    return next(
        (f"{where} {name} more than once" for name, times in Counter(names).items() if times > 1), None
    )


def _find_contradiction(group: NeedBody | NeedGroupBody) -> str | None:
    both = sorted(set(group.required) & set(group.forbidden))
    return f"{both[0]} is required and forbidden" if both else None


def make_need(name: str, body: NeedBody) -> Need:
    return Need(
        name,
        body.resources,
        body.required,
        body.forbidden,
        groups=tuple(
            NeedGroup(group.name, group.resources, group.required, group.forbidden) for group in body.groups
        ),
        same_subtree=body.same_subtree,
        isolates=body.group_policy == "isolate",
    )


def make_needs(bodies: Iterable[NamedNeedBody]) -> tuple[Need, ...]:
    return tuple(make_need(body.name, body) for body in bodies)


# -- what is shown ------------------------------------------------------------------------------

_Amounts = Annotated[dict[str, int], Meta(description="Amounts by the name of the resource class.")]
_Allocations = Annotated[
    dict[str, _Amounts], Meta(description="Amounts by the uuid of the provider that they are held on.")
]


class NeedGroupDetail(msgspec.Struct):
    name: str
    resources: _Amounts
    required: list[str]
    forbidden: list[str]
    allocations: _Allocations


class NeedDetail(msgspec.Struct):
    """``allocations`` is empty while the server holds nothing. A need of one group has no ``groups``.
    ``port`` is the port that it was made for, if it was."""

    name: str
    resources: _Amounts
    required: list[str]
    forbidden: list[str]
    allocations: _Allocations
    groups: list[NeedGroupDetail]
    same_subtree: list[str]
    group_policy: Literal["none", "isolate"]
    port: str | None


def describe_need(need: Need) -> NeedDetail:
    return NeedDetail(
        need.name,
        need.resources,
        list(need.required),
        list(need.forbidden),
        _describe_held(need.held),
        [
            NeedGroupDetail(
                group.name,
                group.resources,
                list(group.required),
                list(group.forbidden),
                _describe_held(group.held),
            )
            for group in need.groups
        ],
        list(need.same_subtree),
        "isolate" if need.isolates else "none",
        need.port,
    )


def _describe_held(held: Held) -> dict[str, dict[str, int]]:
    return {provider: dict(amounts) for provider, amounts in held}
