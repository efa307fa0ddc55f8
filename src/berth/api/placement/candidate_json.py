"""Candidates as JSON text, made from pieces.

A request for candidates answers with thousands of small objects that differ in a uuid. Building them as
dicts and encoding those costs ten times what joining prepared text costs. What the text holds is ASCII
by rule (uuids, names of classes and traits), so nothing in it needs escaping.

The summaries of a tree are rendered once and kept until anything in the tree changes (its root's
``revision``), or any resource class is renamed.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec

from berth.model.ids import ClassId
from berth.model.placement import Amounts
from berth.search.candidates import Candidates, OneProviderCandidates
from berth.search.patterns import Candidate, Pattern, TreeCandidates
from berth.view import ProviderRecord, View
from berth.view.resource_classes import ResourceClasses

_KEPT_BYTES_MAX: Final = 32 << 20
"""How much rendered text is kept; the oldest goes first."""

VERSION_ALLOCATIONS_BY_PROVIDER: Final = 12
VERSION_TRAITS: Final = 17
VERSION_ALL_RESOURCES: Final = 27
VERSION_NESTED: Final = 29
VERSION_MAPPINGS: Final = 34


class CandidateRenderer:
    def __init__(self) -> None:
        # By record, not by id: a provider made anew under an old uuid counts its revisions anew.
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


# -- callers of old ------------------------------------------------------------------------------


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
