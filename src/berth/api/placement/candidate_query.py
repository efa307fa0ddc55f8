"""The query of GET /allocation_candidates as a request: groups by suffix, and what spans them.

A parameter ``resources``, ``required``, ``member_of`` or ``in_tree`` belongs to the group of its suffix:
a number from 1.25, a name from 1.33. Groups stand in the order in which they were first mentioned.
"""

import re
from typing import Final, NamedTuple

from berth.api.kernel.codes import QUERY_BAD_VALUE, QUERY_DUPLICATE_KEY, QUERY_MISSING_VALUE
from berth.api.kernel.problem import Problem
from berth.api.placement.query import (
    CLASSES_MAX,
    NAMES_MAX,
    Query,
    limit_names,
    parse_in_tree,
    parse_member_of,
    parse_required,
    parse_resources,
    parse_traits,
    validate_candidates,
)
from berth.model.scheduling import UNSUFFIXED, CandidatesRequest, RequestGroup

_LIMIT_MAX: Final = 2**31 - 1
_LIMIT_DIGITS_MAX: Final = len(str(_LIMIT_MAX))
_NAMES_MAX: Final = {"resources": CLASSES_MAX, "required": NAMES_MAX, "member_of": NAMES_MAX}
_NUMBERED = re.compile(r"(resources|required|member_of|in_tree)([1-9][0-9]*)?\Z")
_NAMED = re.compile(r"(resources|required|member_of|in_tree)([a-zA-Z0-9_-]{1,64})?\Z")


def parse_candidates_query(query: Query, version: int, groups_max: int) -> CandidatesRequest:
    validate_candidates(query, version)
    limit_names("root_required", query.all("root_required"))
    limit_names("same_subtree", query.all("same_subtree"))
    limit = _limit(query.all("limit"))
    root_required, root_forbidden = _root_traits(query)
    same_subtrees = _same_subtrees(query)
    groups = _groups(query, version, groups_max)
    if version >= 36:
        _check_resourceless(groups, same_subtrees)
    else:
        _check_orphans(groups)
    if version >= 22:
        _check_conflicts(groups)
    # As in upstream the first value counts, and the schema has seen only the last: a first one that is no
    # policy does not keep groups apart, and an empty one is as good as none.
    policy = next(iter(query.all("group_policy")), "")
    if not policy and sum(group.suffix != UNSUFFIXED for group in groups) > 1:
        raise Problem(
            400,
            'The "group_policy" parameter is required when specifying more than one '
            '"resources{N}" parameter.',
        )
    return CandidatesRequest(
        groups=tuple(groups),
        isolate=policy == "isolate",
        limit=limit,
        root_required=root_required,
        root_forbidden=root_forbidden,
        same_subtrees=same_subtrees,
        nested=version >= 29,
    )


def _limit(values: list[str]) -> int | None:
    """The first value counts, as in upstream, where 0 is no limit."""
    if not values:
        return None
    # Python refuses to read a number of thousands of digits.
    digits = values[0].strip().lstrip("+0")
    return _LIMIT_MAX if len(digits) > _LIMIT_DIGITS_MAX else min(int(digits or "0"), _LIMIT_MAX) or None


class _Parameter(NamedTuple):
    """A parameter of a group, with its name in parts."""

    name: str
    prefix: str
    suffix: str
    value: str


def _parameters(query: Query, version: int, groups_max: int) -> list[_Parameter]:
    """The parameters that make up groups, if there are no more than may be."""
    pattern = _NAMED if version >= 33 else _NUMBERED
    found = [
        _Parameter(match[0], match[1], match[2] or UNSUFFIXED, value)
        for name, value in query.pairs
        if (match := pattern.match(name)) is not None
    ]
    groups = {parameter.suffix for parameter in found}
    if len(groups) > groups_max:
        raise Problem(
            400,
            f"Too many request groups: {len(groups)} were sent, at most {groups_max} are allowed in one "
            "request. Ask for less at once, or have the setting request_groups_max raised.",
        )
    for limited, count_max in _NAMES_MAX.items():
        values = (parameter.value for parameter in found if parameter.prefix == limited)
        limit_names(limited, values, count_max)
    return found


def _groups(query: Query, version: int, groups_max: int) -> list[RequestGroup]:
    fields: dict[str, dict[str, object]] = {}
    seen: set[str] = set()
    for name, prefix, suffix, value in _parameters(query, version, groups_max):
        group = fields.setdefault(suffix, {"suffix": suffix})
        # Every occurrence of these is read, and the last one counts.
        if prefix == "resources":
            group["resources"] = parse_resources(value)
        elif prefix == "in_tree":
            group["in_tree"] = parse_in_tree(value)
        # All occurrences of these are read at the first of them.
        elif name in seen:
            continue
        elif prefix == "required":
            group["required"], group["forbidden"] = parse_required(query.all(name), version)
        else:
            group["member_of"], group["not_member_of"] = parse_member_of(query.all(name), version, suffix)
        seen.add(name)
    return [RequestGroup(**group) for group in fields.values()]  # type: ignore[arg-type]


def _root_traits(query: Query) -> tuple[frozenset[str], frozenset[str]]:
    values = query.all("root_required")
    if not values:
        return frozenset(), frozenset()
    if len(values) > 1:
        raise Problem(400, "Query parameter 'root_required' may be specified only once.", QUERY_DUPLICATE_KEY)
    any_of, forbidden = parse_traits(values[0], may_forbid=True, may_choose=False)
    required = frozenset(name for (name,) in any_of)
    conflicts = sorted(required & forbidden)
    if conflicts:
        raise Problem(
            400,
            f"Conflicting required and forbidden traits found in root_required: {', '.join(conflicts)}",
            QUERY_BAD_VALUE,
        )
    return required, forbidden


def _same_subtrees(query: Query) -> tuple[frozenset[str], ...]:
    found = []
    for value in query.all("same_subtree"):
        suffixes = frozenset(part.strip() for part in value.split(","))
        if UNSUFFIXED in suffixes:
            raise Problem(
                400,
                "Empty string (unsuffixed group) can not be specified in `same_subtree` ",
                QUERY_BAD_VALUE,
            )
        found.append(suffixes)
    return tuple(found)


def _check_resourceless(groups: list[RequestGroup], same_subtrees: tuple[frozenset[str], ...]) -> None:
    """From 1.36 a group may ask for no resources, if it takes part in a same_subtree."""
    named = [group.suffix for group in groups]
    in_subtrees = sorted(frozenset().union(*same_subtrees))
    resourceless = [group.suffix for group in groups if not group.resources]
    if len(resourceless) == len(groups):
        raise Problem(
            400,
            "There must be at least one resources or resources[$S] parameter.",
            QUERY_MISSING_VALUE,
        )
    loose = [suffix for suffix in resourceless if suffix not in in_subtrees]
    if loose:
        raise Problem(
            400,
            "Resourceless suffixed group request should be specified in `same_subtree` query param: "
            f"bad group(s) - {loose}.",
            QUERY_BAD_VALUE,
        )
    unknown = [suffix for suffix in in_subtrees if suffix not in named]
    if unknown:
        raise Problem(
            400,
            f"Real suffixes should be specified in `same_subtree`: {unknown} not found in {named}.",
            QUERY_BAD_VALUE,
        )


def _check_orphans(groups: list[RequestGroup]) -> None:
    """Before 1.36 every group must ask for resources."""
    traits = [f"required{group.suffix}" for group in groups if group.required and not group.resources]
    if traits:
        raise Problem(
            400,
            "All traits parameters must be associated with resources.  Found the following orphaned "
            f"traits keys: {', '.join(traits)}",
        )
    aggregates = [
        f"member_of{group.suffix}"
        for group in groups
        if not group.resources and (group.member_of or group.not_member_of)
    ]
    if aggregates:
        raise Problem(
            400,
            "All member_of parameters must be associated with resources. Found the following orphaned "
            f"member_of keys: {', '.join(aggregates)}",
        )
    if not all(group.resources for group in groups):
        raise Problem(400, "All request groups must specify resources.")
    if not groups:
        raise Problem(400, "At least one request group (`resources` or `resources{$S}`) is required.")


def _check_conflicts(groups: list[RequestGroup]) -> None:
    conflicts = [
        f"required{group.suffix}: ({', '.join(sorted(alternatives))})"
        for group in groups
        for alternatives in group.required
        if group.forbidden.issuperset(alternatives)
    ]
    if conflicts:
        raise Problem(
            400,
            "Conflicting required and forbidden traits found in the following traits keys: "
            f"{', '.join(sorted(conflicts))}",
        )
