"""Candidates as JSON text, made from pieces.

A request for candidates answers with thousands of small objects that differ in a uuid. Building them as
dicts and encoding those costs ten times what joining prepared text costs. What the text holds is ASCII
by rule (uuids, names of classes and traits), so nothing in it needs escaping.

The summary of a provider is rendered once and kept until the provider changes (its ``revision``), or any
resource class is renamed.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from berth.model.consumer import Amounts
from berth.model.ids import ClassId
from berth.search.candidates import Candidates, OneProviderCandidates
from berth.search.patterns import Candidate, Pattern
from berth.view import ProviderRecord, View
from berth.view.classes import ResourceClasses

_SUMMARIES_KEPT_MAX: Final = 20_000
"""How many rendered summaries are kept; the oldest go first. About 1 KiB each."""

VERSION_ALLOCATIONS_BY_PROVIDER: Final = 12
VERSION_TRAITS: Final = 17
VERSION_ALL_RESOURCES: Final = 27
VERSION_NESTED: Final = 29
VERSION_MAPPINGS: Final = 34


class CandidateRenderer:
    def __init__(self) -> None:
        # By record, not by id: a provider made anew under an old uuid counts its revisions anew.
        self._summaries: dict[ProviderRecord, tuple[int, str]] = {}
        self._classes_revision = -1

    def render(self, view: View, candidates: Candidates, asked: frozenset[ClassId], version: int) -> bytes:
        """The body of an answer. ``asked`` are the classes of the request, which bound what callers before
        1.27 see of a provider."""
        requests = _requests(view.classes, candidates.requests, version)
        if version >= VERSION_NESTED:
            summaries = self._kept_summaries(view.classes, candidates.summaries)
        else:
            summaries = [
                _old_summary(view.classes, record, asked, version) for record in candidates.summaries
            ]
        text = f'{{"allocation_requests":[{requests}],"provider_summaries":{{{",".join(summaries)}}}}}'
        return text.encode("ascii")

    def _kept_summaries(self, classes: ResourceClasses, records: Sequence[ProviderRecord]) -> list[str]:
        kept = self._summaries
        if self._classes_revision != classes.revision:
            kept.clear()
            self._classes_revision = classes.revision
        found = []
        for record in records:
            revision, text = kept.get(record, (-1, ""))
            if revision != record.revision:
                text = _summary(classes, record)
                kept.pop(record, None)
                kept[record] = (record.revision, text)
            found.append(text)
        while len(kept) > _SUMMARIES_KEPT_MAX:
            del kept[next(iter(kept))]
        return found


def _requests(classes: ResourceClasses, found: Sequence[Candidate], version: int) -> str:
    if version < VERSION_ALLOCATIONS_BY_PROVIDER:
        return ",".join([_listed(classes, candidate) for candidate in found])
    with_mappings = version >= VERSION_MAPPINGS
    if isinstance(found, OneProviderCandidates) and found.amounts:
        head = '{"allocations":{"'
        middle = f'":{{"resources":{_resources(classes, found.amounts)}}}}}'
        if not with_mappings:
            return ",".join([f"{head}{record.id}{middle}}}" for record in found.records])
        middle = f'{middle},"mappings":{{"{found.suffix}":["'
        return ",".join([f'{head}{record.id}{middle}{record.id}"]}}}}' for record in found.records])
    return _Joined(classes, with_mappings).requests(found)


class _Joined:
    """Candidates of several providers: a template for each pattern, and the uuids that go into it."""

    def __init__(self, classes: ResourceClasses, with_mappings: bool) -> None:
        self._classes = classes
        self._with_mappings = with_mappings
        self._templates: dict[int, tuple[str, list[int]]] = {}

    def requests(self, found: Sequence[Candidate]) -> str:
        return ",".join([self._request(candidate) for candidate in found])

    def _request(self, candidate: Candidate) -> str:
        pattern, records = candidate.pattern, candidate.records
        # By identity: patterns live as long as the candidates, and are compared often.
        known = self._templates.get(id(pattern))
        if known is None:
            known = self._templates[id(pattern)] = self._template(pattern)
        template, places = known
        return template % tuple([records[at].id for at in places])

    def _template(self, pattern: Pattern) -> tuple[str, list[int]]:
        places = [at for at, _ in pattern.allocations]
        allocations = ",".join(
            f'"%s":{{"resources":{_resources(self._classes, amounts)}}}' for _, amounts in pattern.allocations
        )
        if not self._with_mappings:
            return f'{{"allocations":{{{allocations}}}}}', places
        mappings = []
        for suffix, ats in pattern.mappings:
            places += ats
            uuids = ",".join(['"%s"'] * len(ats))
            mappings.append(f'"{suffix}":[{uuids}]')
        return f'{{"allocations":{{{allocations}}},"mappings":{{{",".join(mappings)}}}}}', places


def _resources(classes: ResourceClasses, amounts: Amounts) -> str:
    pairs = ",".join([f'"{classes.name_of(id)}":{amount}' for id, amount in amounts])
    return f"{{{pairs}}}"


def _summary(classes: ResourceClasses, record: ProviderRecord) -> str:
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
    )


# -- callers of old ------------------------------------------------------------------------------


def _old_summary(
    classes: ResourceClasses, record: ProviderRecord, asked: frozenset[ClassId], version: int
) -> str:
    summary: dict[str, object] = {
        "resources": {
            classes.name_of(id): {"capacity": inventory.capacity, "used": record.used.get(id, 0)}
            for id, inventory in record.inventories.items()
            if version >= VERSION_ALL_RESOURCES or id in asked
        }
    }
    if version >= VERSION_TRAITS:
        summary["traits"] = record.traits
    return f'"{record.id}":{msgspec.json.encode(summary).decode()}'


def _listed(classes: ResourceClasses, candidate: Candidate) -> str:
    """The form before 1.12: a list of providers."""
    allocations = ",".join(
        [
            f'{{"resource_provider":{{"uuid":"{record.id}"}},"resources":{_resources(classes, amounts)}}}'
            for record, amounts in candidate.allocations
        ]
    )
    return f'{{"allocations":[{allocations}]}}'
