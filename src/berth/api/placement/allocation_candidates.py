"""GET /allocation_candidates: the query read as a request, and what is found for it as JSON text.

A parameter ``resources``, ``required``, ``member_of`` or ``in_tree`` belongs to the group of its suffix:
a number from 1.25, a name from 1.33. Groups stand in the order in which they were first mentioned.

An answer has thousands of small objects that differ in a uuid. Building them as dicts and encoding those
costs ten times what joining prepared text costs. What the text holds is ASCII by rule (uuids, names of
classes and traits), so nothing in it needs escaping. The summaries of a tree are rendered once and kept until
anything in the tree changes (its root's ``revision``), or any resource class is renamed.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from berth.api.kernel.codes import QUERY_BAD_VALUE, QUERY_DUPLICATE_KEY, QUERY_MISSING_VALUE
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import Attempt, placement_problem
from berth.api.placement.calls import Answer, PlacementCall
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
from berth.model.ids import ClassId
from berth.model.placement import Amounts
from berth.model.rejections import Rejection
from berth.model.scheduling import UNSUFFIXED, CandidatesRequest, RequestGroup
from berth.search.candidates import Candidates, OneProviderCandidates, SearchOptions, find_candidates
from berth.search.patterns import Candidate, Pattern, TreeCandidates
from berth.view import ProviderRecord, View
from berth.view.resource_classes import ResourceClasses

_LIMIT_MAX: Final = 2**31 - 1
_LIMIT_DIGITS_MAX: Final = len(str(_LIMIT_MAX))
_NAMES_MAX: Final = {"resources": CLASSES_MAX, "required": NAMES_MAX, "member_of": NAMES_MAX}
_NUMBERED = re.compile(r"(resources|required|member_of|in_tree)([1-9][0-9]*)?\Z")
_NAMED = re.compile(r"(resources|required|member_of|in_tree)([a-zA-Z0-9_-]{1,64})?\Z")
_KEPT_BYTES_MAX: Final = 32 << 20
"""How much rendered text is kept; the oldest goes first."""
VERSION_ALLOCATIONS_BY_PROVIDER: Final = 12
VERSION_TRAITS: Final = 17
VERSION_ALL_RESOURCES: Final = 27
VERSION_NESTED: Final = 29
VERSION_MAPPINGS: Final = 34

_log = logging.getLogger(__name__)

# -- the query ----------------------------------------------------------------------------------


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


# -- the answer ---------------------------------------------------------------------------------


class CandidateRenderer:
    def __init__(self) -> None:
        # By record, not by id: a provider that is created again under its uuid counts its revisions from 0.
        self._trees: dict[ProviderRecord, tuple[int, bytes]] = {}
        self._kept_bytes = 0
        self._classes_revision = -1

    def render(self, view: View, candidates: Candidates, asked: frozenset[ClassId], version: int) -> bytes:
        """The body of an answer. ``asked`` are the classes of the request, which bound what callers before
        1.27 see of a provider."""
        requests = _requests(view.classes, candidates.requests, version)
        touched = candidates.touched
        if version >= VERSION_NESTED:
            summaries = self._summaries_of_trees(view.classes, touched)
        else:
            summaries = [_old_summary(view.classes, record, asked, version) for record in touched]
        parts = (
            b'{"allocation_requests":[',
            requests,
            b'],"provider_summaries":{',
            b",".join(summaries),
            b"}}",
        )
        return b"".join(parts)

    def _summaries_of_trees(self, classes: ResourceClasses, roots: Sequence[ProviderRecord]) -> list[bytes]:
        if self._classes_revision != classes.revision:
            self._trees.clear()
            self._kept_bytes = 0
            self._classes_revision = classes.revision
        kept = self._trees
        nothing = (-1, b"")
        found = []
        for root in roots:
            revision, text = kept.get(root, nothing)
            if revision != root.revision:
                text = self._keep(root, b",".join([_summary(classes, record) for record in root.tree()]))
            found.append(text)
        return found

    def _keep(self, root: ProviderRecord, text: bytes) -> bytes:
        kept = self._trees
        _, old = kept.pop(root, (0, b""))
        kept[root] = (root.revision, text)
        self._kept_bytes += len(text) - len(old)
        while self._kept_bytes > _KEPT_BYTES_MAX:
            _, oldest = kept.pop(next(iter(kept)))
            self._kept_bytes -= len(oldest)
        return text


def _requests(classes: ResourceClasses, found: Sequence[Candidate], version: int) -> bytes:
    if version < VERSION_ALLOCATIONS_BY_PROVIDER:
        return ",".join([_listed(classes, candidate) for candidate in found]).encode()
    with_mappings = version >= VERSION_MAPPINGS
    if isinstance(found, OneProviderCandidates) and found.amounts:
        head = '{"allocations":{"'
        middle = f'":{{"resources":{_resources(classes, found.amounts)}}}}}'
        if not with_mappings:
            return ",".join([f"{head}{record.id}{middle}}}" for record in found.records]).encode()
        middle = f'{middle},"mappings":{{"{found.suffix}":["'
        texts = [f'{head}{id}{middle}{id}"]}}}}' for id in [record.id for record in found.records]]
        return ",".join(texts).encode()
    return _Joined(classes, with_mappings).requests(found)


class _Joined:
    """Candidates of several providers: a template for each pattern, and the uuids that go into it."""

    def __init__(self, classes: ResourceClasses, with_mappings: bool) -> None:
        self._classes = classes
        self._with_mappings = with_mappings
        self._templates: dict[int, tuple[bytes, Callable[[Sequence[bytes]], Any]]] = {}

    def requests(self, found: Sequence[Candidate]) -> bytes:
        texts = []
        for pattern, ids in _patterns_and_ids(found):
            # By identity: patterns live as long as the candidates, and are compared often.
            known = self._templates.get(id(pattern))
            if known is None:
                known = self._templates[id(pattern)] = self._template(pattern)
            template, pick = known
            texts.append(template % pick(ids))
        return b",".join(texts)

    def _template(self, pattern: Pattern) -> tuple[bytes, Callable[[Sequence[bytes]], Any]]:
        """The text, and what takes from the uuids of a list of providers those that go into it, in order."""
        places = [at for at, _ in pattern.allocations]
        allocations = ",".join(
            f'"%b":{{"resources":{_resources(self._classes, amounts)}}}' for _, amounts in pattern.allocations
        )
        text = f'{{"allocations":{{{allocations}}}}}'
        if self._with_mappings:
            mappings = []
            for suffix, ats in pattern.mappings:
                places += ats
                uuids = ",".join(['"%b"'] * len(ats))
                mappings.append(f'"{suffix}":[{uuids}]')
            text = f'{text[:-1]},"mappings":{{{",".join(mappings)}}}}}'
        return text.encode(), itemgetter(*places)


def _patterns_and_ids(found: Sequence[Candidate]) -> Iterator[tuple[Pattern, Sequence[bytes]]]:
    if isinstance(found, TreeCandidates):
        return zip(found.patterns, [tree.ids for tree in found.trees], strict=True)
    return ((one.pattern, [record.id.encode() for record in one.records]) for one in found)


def _resources(classes: ResourceClasses, amounts: Amounts) -> str:
    pairs = ",".join([f'"{classes.name_of(id)}":{amount}' for id, amount in amounts])
    return f"{{{pairs}}}"


def _summary(classes: ResourceClasses, record: ProviderRecord) -> bytes:
    """A provider as callers from 1.29 on see it."""
    resources = ",".join(
        [
            f'"{classes.name_of(id)}":{{"capacity":{inventory.capacity},"used":{record.used.get(id, 0)}}}'
            for id, inventory in record.inventories.items()
        ]
    )
    traits = ",".join([f'"{name}"' for name in record.traits])
    parent = f'"{record.parent.id}"' if record.parent else "null"
    return (
        f'"{record.id}":{{"resources":{{{resources}}},"traits":[{traits}],'
        f'"parent_provider_uuid":{parent},"root_provider_uuid":"{record.root.id}"}}'
    ).encode()


def _old_summary(
    classes: ResourceClasses, record: ProviderRecord, asked: frozenset[ClassId], version: int
) -> bytes:
    summary: dict[str, object] = {
        "resources": {
            classes.name_of(id): {"capacity": inventory.capacity, "used": record.used.get(id, 0)}
            for id, inventory in record.inventories.items()
            if version >= VERSION_ALL_RESOURCES or id in asked
        }
    }
    if version >= VERSION_TRAITS:
        summary["traits"] = record.traits
    return b'"%b":%b' % (record.id.encode(), msgspec.json.encode(summary))


def _listed(classes: ResourceClasses, candidate: Candidate) -> str:
    """The form before 1.12: a list of providers."""
    allocations = ",".join(
        [
            f'{{"resource_provider":{{"uuid":"{record.id}"}},"resources":{_resources(classes, amounts)}}}'
            for record, amounts in candidate.allocations
        ]
    )
    return f'{{"allocations":[{allocations}]}}'


# -- the handler --------------------------------------------------------------------------------

# Rendered summaries follow from the records of a view alone, so all callers share them.
_RENDERER: Final = CandidateRenderer()


async def list_candidates(call: PlacementCall) -> Answer:
    version = call.version
    request = parse_candidates_query(call.query, version, call.services.settings.request_groups_max)
    options = _options(call)

    def answer(view: View) -> tuple[Answer, int, int]:
        found = find_candidates(view, request, options)
        if isinstance(found, Rejection):
            return placement_problem(found, Attempt.LIST_CANDIDATES), 0, 0
        body = _RENDERER.render(view, found, _asked(view, request), version)
        return call.json(body, call.now_s), found.effort.gave_up, found.effort.steps

    answered, gave_up, steps = await call.read(answer)
    if gave_up:
        _log.warning(
            "candidates may be missing: the search gave up on %d roots after %d steps in all",
            gave_up,
            steps,
            extra={"request_id": call.request.request_id},
        )
    return answered


def _options(call: PlacementCall) -> SearchOptions:
    settings = call.services.settings
    return SearchOptions(
        max_candidates=settings.max_allocation_candidates,
        breadth_first=settings.allocation_candidates_generation_strategy == "breadth-first",
        rng=call.services.ids.rng if settings.randomize_allocation_candidates else None,
    )


def _asked(view: View, request: CandidatesRequest) -> frozenset[ClassId]:
    ids = (view.classes.id_of(name) for group in request.groups for name, _ in group.resources)
    return frozenset(id for id in ids if id is not None)
