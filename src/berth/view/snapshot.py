"""A view as bytes and back: what a snapshot holds.

A snapshot is a sequence of parts, each a few megabytes at most, so that neither writing nor reading needs the
whole of it in memory twice. Strings that occur often (projects, users, amounts of a flavor) are written once
per part and shared in memory when read. What is in a part belongs to the journal's format
(``model.formats``).
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from berth.model.events import (
    AggregateLabelled,
    AggregatesChanged,
    AnyRecord,
    GroupChanged,
    HostChanged,
    InventoryChanged,
    MemberChanged,
    Named,
    Placed,
    ProviderChanged,
    ProviderStamped,
    RecordChanged,
    ResourceClassChanged,
    Stamp,
    TraitChanged,
    TraitsChanged,
)
from berth.model.formats import FORMAT
from berth.model.groups import Group, Membership
from berth.model.ids import AggregateId, ClassId, ConsumerId, GroupId, Index, ProviderId, Row
from berth.model.placement import Amounts, Consumer, Holding, HostStatus, Inventory, Label
from berth.view.consumers import ConsumerIndex, ConsumerRecord
from berth.view.provider import ProviderRecord
from berth.view.view import View

_PROVIDERS_PER_PART: Final = 5_000
_CONSUMERS_PER_PART: Final = 10_000
_RECORDS_PER_PART: Final = 2_000

T = TypeVar("T")


class SnapshotInvalid(Exception):
    """These bytes are not a snapshot that this program can read."""


class _Vocabulary(msgspec.Struct, frozen=True, array_like=True, tag="vocabulary"):
    index: Index
    classes: tuple[tuple[ClassId, Named], ...]
    traits: tuple[tuple[str, int], ...]


class _Provider(msgspec.Struct, frozen=True, array_like=True, gc=False):
    id: ProviderId
    row: Row
    name: str
    parent: ProviderId | None
    stamp: Stamp
    inventories: tuple[tuple[ClassId, Inventory], ...]
    used: Amounts
    traits: tuple[str, ...]
    aggregates: tuple[AggregateId, ...]


class _Providers(msgspec.Struct, frozen=True, array_like=True, tag="providers"):
    providers: tuple[_Provider, ...]


class _SavedConsumer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A consumer; numbers stand for the texts and amounts of its part, rows for providers."""

    id: ConsumerId
    generation: int
    project: int
    user: int
    type: int | None
    created_at_s: int
    updated_at_s: int
    held: tuple[tuple[Row, int], ...]
    made_by: int | None = None


class _Consumers(msgspec.Struct, frozen=True, array_like=True, tag="consumers"):
    texts: tuple[str, ...]
    amounts: tuple[Amounts, ...]
    consumers: tuple[_SavedConsumer, ...]


class _ViewFacts(msgspec.Struct, frozen=True, array_like=True, tag="facts"):
    """What is known beside Placement's own: labels, hosts and groups."""

    labels: tuple[tuple[AggregateId, Label], ...]
    hosts: tuple[tuple[ProviderId, HostStatus], ...]
    groups: tuple[tuple[GroupId, Group], ...]
    members: tuple[tuple[ConsumerId, Membership], ...]


class _Records(msgspec.Struct, frozen=True, array_like=True, tag="records"):
    records: tuple[AnyRecord, ...]


_Part = _ViewFacts | _Records | _Vocabulary | _Providers | _Consumers


# -- writing ------------------------------------------------------------------------------------


def dump(view: View) -> Iterator[bytes]:
    """The view in parts. It must not change meanwhile."""
    encode = msgspec.msgpack.Encoder().encode
    custom = ((id, Named(view.classes.name_of(id), at_s)) for id, at_s in view.classes.custom())
    yield encode(_Vocabulary(view.index, tuple(custom), tuple(view.custom_traits.items())))
    roots = (record for record in view.rows if record is not None and record.parent is None)
    trees = itertools.chain.from_iterable(root.tree() for root in roots)
    for records in _chunks(trees, _PROVIDERS_PER_PART):
        yield encode(_Providers(tuple(_provider(record) for record in records)))
    # In order, so that a view that begins with the image need not sort them.
    for ids in _chunks(view.consumer_index.behind(), _CONSUMERS_PER_PART):
        yield encode(_consumers(view, ids))
    # Last: where members of groups stand follows from what they hold.
    yield encode(_facts(view))
    for some in _chunks(view.records.everything(), _RECORDS_PER_PART):
        yield encode(_Records(tuple(some)))


def _facts(view: View) -> _ViewFacts:
    groups = view.groups
    return _ViewFacts(
        tuple(groups.labels.items()),
        tuple(view.hosts.items()),
        tuple((id, record.group) for id, record in groups.records.items()),
        tuple(groups.memberships.items()),
    )


def _provider(record: ProviderRecord) -> _Provider:
    return _Provider(
        record.id,
        record.row,
        record.name,
        record.parent.id if record.parent else None,
        record.stamp,
        tuple(record.inventories.items()),
        tuple(record.used.items()),
        record.traits,
        record.aggregates,
    )


def _consumers(view: View, ids: list[ConsumerId]) -> _Consumers:
    texts: dict[str, int] = {}
    amounts: dict[Amounts, int] = {}

    def consumer(id: ConsumerId, record: ConsumerRecord) -> _SavedConsumer:
        it = record.consumer
        return _SavedConsumer(
            id,
            it.generation,
            texts.setdefault(it.project, len(texts)),
            texts.setdefault(it.user, len(texts)),
            None if it.type is None else texts.setdefault(it.type, len(texts)),
            it.created_at_s,
            it.updated_at_s,
            tuple((view.providers[p].row, amounts.setdefault(a, len(amounts))) for p, a in record.held),
            texts.setdefault(it.made_by, len(texts)) if it.made_by else None,
        )

    held = tuple(consumer(id, view.consumers[id]) for id in ids)
    return _Consumers(tuple(texts), tuple(amounts), held)


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


# -- reading ------------------------------------------------------------------------------------


def load(parts: Iterable[bytes], format: int = FORMAT) -> View:
    """The view that was dumped, of a journal that had this format."""
    view = View()
    view.format = format
    decode = msgspec.msgpack.Decoder(_Part).decode
    for body in parts:
        try:
            part = decode(body)
        except msgspec.MsgspecError as error:
            raise SnapshotInvalid(f"a part of the snapshot cannot be read: {error}") from error
        match part:
            case _Vocabulary():
                _load_vocabulary(view, part)
            case _Providers():
                for provider in part.providers:
                    _load_provider(view, provider)
            case _Consumers():
                _load_consumers(view, part)
            case _ViewFacts():
                _load_facts(view, part)
            case _Records():
                for record in part.records:
                    view.apply(RecordChanged(None, record))
    view.consumer_index = ConsumerIndex(view.consumers)
    return view


def _load_vocabulary(view: View, part: _Vocabulary) -> None:
    view.index = part.index
    for id, named in part.classes:
        view.apply(ResourceClassChanged(id, None, named))
    for name, created_at_s in part.traits:
        view.apply(TraitChanged(name, None, created_at_s))


def _load_facts(view: View, part: _ViewFacts) -> None:
    for aggregate, label in part.labels:
        view.apply(AggregateLabelled(aggregate, None, label))
    for provider, status in part.hosts:
        view.apply(HostChanged(provider, None, status))
    for id, group in part.groups:
        view.apply(GroupChanged(id, None, group))
    for consumer, membership in part.members:
        view.apply(MemberChanged(consumer, None, membership))


def _load_provider(view: View, it: _Provider) -> None:
    view.apply(ProviderChanged(it.id, it.row, None, Placed(it.name, it.parent)))
    record = view.providers[it.id]
    view.apply(ProviderStamped(it.id, record.stamp, it.stamp))
    # Before the inventories, whose columns are made from it.
    record.used.update(it.used)
    for class_id, inventory in it.inventories:
        view.apply(InventoryChanged(it.id, class_id, None, inventory))
    if it.traits:
        view.apply(TraitsChanged(it.id, (), it.traits))
    if it.aggregates:
        view.apply(AggregatesChanged(it.id, (), it.aggregates))


def _load_consumers(view: View, part: _Consumers) -> None:
    texts = [view.shared_text(text) for text in part.texts]
    amounts = [view.shared_amounts(held) for held in part.amounts]
    for it in part.consumers:
        consumer = Consumer(
            it.generation,
            texts[it.project],
            texts[it.user],
            None if it.type is None else texts[it.type],
            it.created_at_s,
            # Mostly nothing has changed since, and then one number serves for both.
            it.created_at_s if it.updated_at_s == it.created_at_s else it.updated_at_s,
            "" if it.made_by is None else texts[it.made_by],
        )
        held: list[Holding] = []
        for row, number in it.held:
            record = view.record(row)
            record.consumers.add(it.id)
            held.append((record.id, amounts[number]))
        holdings = tuple(held)
        view.consumers[it.id] = ConsumerRecord(consumer, holdings)
        view.usage.add(consumer, holdings)
