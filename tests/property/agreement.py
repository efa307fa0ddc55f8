"""What a view and the oracle must agree on, and a view with itself."""

import numpy as np

from berth.model.events import AggregateLabelled, AggregatesChanged, ProviderChanged, TraitsChanged
from berth.model.groups import HOST
from berth.model.ids import AggregateId, ClassId, ConsumerId, GroupId, ProviderId, Row
from berth.model.placement import SHARES_VIA_AGGREGATE
from berth.oracle.groups import standing
from berth.oracle.ledger import Oracle
from berth.view import View
from berth.view.consumers import ConsumerFilter

AGGREGATES = [AggregateId(f"20000000-0000-0000-0000-00000000000{n}") for n in range(4)]
TRAITS = ["HW_CPU_X86_AVX", SHARES_VIA_AGGREGATE, "CUSTOM_FAST", "CUSTOM_SLOW"]
KINDS = ["rack", "zone"]

# -- what can be seen of a state, in one form for both sides ------------------------------------------


def observed(view: View) -> dict[str, object]:
    usage: dict[object, object] = {}
    for project in ("p1", "p2"):
        for user in ("u1", "u2"):
            for consumer_type, total in view.usage.of_project(project, user):
                usage[project, user, consumer_type] = (total.consumers, total.amounts)
    return {
        "classes": {
            id: (view.classes.name_of(id), view.classes.created_at_s(id))
            for id in view.classes.ids()
            if view.classes.created_at_s(id) is not None
        },
        "traits": dict(view.custom_traits),
        "providers": {
            id: (
                record.name,
                record.parent.id if record.parent else None,
                record.root.id,
                record.generation,
                record.stamp.created_at_s,
                record.stamp.updated_at_s,
                frozenset(record.traits),
                frozenset(record.aggregates),
                record.inventories,
                record.used,
                record.consumers,
            )
            for id, record in view.providers.items()
        },
        "consumers": {
            id: (
                record.consumer.generation,
                record.consumer.project,
                record.consumer.user,
                record.consumer.type,
                record.consumer.created_at_s,
                record.consumer.updated_at_s,
                {(p, k): amount for p, amounts in record.held for k, amount in amounts},
            )
            for id, record in view.consumers.items()
        },
        "usage": usage,
        "labels": dict(view.groups.labels),
        "kinds": {kind: set(view.groups.of_kind(kind)) for kind in (*KINDS, HOST)},
        "hosts": dict(view.hosts),
        "disabled": {view.record(row).id for row in view.disabled},
        "down": {view.record(row).id for row in view.down},
        "members": {id: (it.group, it.stands_for) for id, it in view.groups.memberships.items()},
        "groups": {
            id: (
                record.group,
                record.members,
                {(who, host.id) for host in record.hosts for who in record.hosts[host]},
            )
            for id, record in view.groups.records.items()
        },
    }


def expected(oracle: Oracle) -> dict[str, object]:
    def used(id: ProviderId) -> dict[ClassId, int]:
        held = {fact.resource_class for fact in oracle.allocations if fact.provider == id}
        return {number: oracle.used(id, number) for number in held}

    return {
        "classes": {fact.number: (fact.name, fact.created_at_s) for fact in oracle.classes},
        "traits": dict(oracle.traits),
        "providers": {
            fact.id: (
                fact.name,
                fact.parent,
                oracle.root(fact.id),
                fact.generation,
                fact.created_at_s,
                fact.updated_at_s,
                fact.traits,
                fact.aggregates,
                {i.resource_class: i.inventory for i in oracle.inventories if i.provider == fact.id},
                used(fact.id),
                {a.consumer for a in oracle.allocations if a.provider == fact.id},
            )
            for fact in oracle.providers
        },
        "consumers": {
            fact.id: (
                fact.generation,
                fact.project,
                fact.user,
                fact.type,
                fact.created_at_s,
                fact.updated_at_s,
                oracle.held(fact.id),
            )
            for fact in oracle.consumers
        },
        "usage": oracle.totals(),
        "labels": {fact.aggregate: fact.label for fact in oracle.labels},
        "kinds": {
            kind: {fact.aggregate for fact in oracle.labels if fact.label.kind == kind}
            for kind in (*KINDS, HOST)
        },
        "hosts": {fact.provider: fact.status for fact in oracle.hosts},
        "disabled": {fact.provider for fact in oracle.hosts if fact.status.disabled},
        "down": {fact.provider for fact in oracle.hosts if fact.status.down},
        "members": {fact.consumer: (fact.group, fact.stands_for) for fact in oracle.members},
        "groups": {
            fact.id: (
                fact.group,
                {it.consumer: it.stands_for for it in oracle.members if it.group == fact.id},
                standing(oracle, fact.id),
            )
            for fact in oracle.groups
        },
    }


# -- what the view keeps twice ------------------------------------------------------------------------


def check_columns(view: View) -> None:
    for class_id in view.classes.ids():
        records = [r for r in view.providers.values() if class_id in r.inventories]
        column = view.classes.column(class_id)
        assert len(column) == len(records)
        by_row = {}
        for record in records:
            inventory = record.inventories[class_id]
            free = max(-(2**62), min(inventory.capacity, 2**62)) - record.used.get(class_id, 0)
            by_row[record.row] = (free, inventory.min_unit, inventory.max_unit, inventory.step_size)
        assert column.by_row() == by_row
        used = {record.row for record in records if record.used.get(class_id)}
        assert set(column.rows_in_use().tolist()) == used
        assert column.sums().used == sum(record.used.get(class_id, 0) for record in records)
        for amount in (1, 2, 3, 5) if records else ():
            fitting = {
                row
                for row, (free, least, most, step) in by_row.items()
                if free >= amount and least <= amount <= most and amount % step == 0
            }
            assert sorted(column.fitting(amount).tolist()) == sorted(fitting)


def check_forest(view: View, oracle: Oracle) -> None:
    assert {record.row for record in view.providers.values()} == {
        row for row, record in enumerate(view.rows) if record is not None
    }
    assert {name: record.id for name, record in view.names.items()} == {
        fact.name: fact.id for fact in oracle.providers
    }
    assert view.nested_count == sum(fact.parent is not None for fact in oracle.providers)
    free = next(row for row in range(len(view.rows) + 1) if row == len(view.rows) or view.rows[row] is None)
    assert view.free_row() == free
    for fact in oracle.providers:
        record = view.providers[fact.id]
        assert view.record(record.row) is record
        assert view.root_rows[record.row] == record.root.row
        assert {child.id for child in record.children.values()} == {
            other.id for other in oracle.providers if other.parent == fact.id
        }
        tree = [r.id for r in record.tree()]
        assert sorted(tree) == sorted(p.id for p in oracle.providers if oracle.root(p.id) == record.root.id)
        assert all(tree.index(r.parent.id) < tree.index(r.id) for r in record.tree() if r.parent)
        below = sorted(p.id for p in oracle.providers if fact.id in oracle.lineage(p.id))
        assert sorted(r.id for r in record.subtree()) == below


def check_masks(view: View) -> None:
    for trait in TRAITS:
        rows = {r.row for r in view.providers.values() if trait in r.traits}
        assert set(view.rows_with_trait(trait)) == rows
        assert mask_of(rows, view.row_end) == view.rows_with_trait(trait).mask(view.row_end).tolist()
    assert set(view.traits_in_use()) == {t for r in view.providers.values() for t in r.traits}
    for aggregate in AGGREGATES:
        rows = {r.row for r in view.providers.values() if aggregate in r.aggregates}
        assert set(view.rows_in_aggregate(aggregate)) == rows
        assert mask_of(rows, view.row_end) == view.rows_in_aggregate(aggregate).mask(view.row_end).tolist()


def check_order(view: View) -> None:
    assert list(view.provider_order) == sorted(view.providers)
    assert list(view.consumer_index.behind()) == sorted(view.consumers)
    for project in ("p1", "p2"):
        for consumer_type in (None, "INSTANCE"):
            owned = [
                id
                for id, record in sorted(view.consumers.items())
                if (record.consumer.project, record.consumer.type) == (project, consumer_type)
            ]
            assert (
                list(view.consumer_index.behind(None, ConsumerFilter(project, None, consumer_type))) == owned
            )


# -- what policies promise ----------------------------------------------------------------------------

OF_THE_WORLD = (AggregateLabelled, AggregatesChanged, ProviderChanged, TraitsChanged)
"""What may put members elsewhere, or their hosts into other domains, and is not refused for it."""

Domains = dict[ConsumerId, list[tuple[str, ...]]]
"""By member: for each host that it stands on, itself or through its migration, the domains it is in."""


def domains_by_member(view: View, id: GroupId) -> Domains:
    """From nothing but memberships, holdings and the forest."""
    kind = view.groups.records[id].group.domain
    found: Domains = {}
    for consumer, membership in view.groups.memberships.items():
        record = view.consumers.get(consumer)
        if membership.group != id or record is None:
            continue
        providers = [view.providers[provider] for provider, _ in record.held]
        own = [provider for provider in providers if SHARES_VIA_AGGREGATE not in provider.traits]
        for host in {provider.root for provider in own or providers}:
            of_kind = [
                a for a in host.aggregates if a in view.groups.labels and view.groups.labels[a].kind == kind
            ]
            domains = (host.id,) if kind == HOST else tuple(sorted(of_kind))
            found.setdefault(membership.stands_for, []).append(domains)
    for hosts in found.values():
        hosts.sort()
    return found


def check_policy(view: View, id: GroupId) -> None:
    group = view.groups.records[id].group
    if not group.is_hard:
        return
    by_member = domains_by_member(view, id)
    hosts = [domains for hosts in by_member.values() for domains in hosts]
    assert all(hosts), "a member is on a host that the policy cannot judge"
    if group.is_apart:
        for domain in {domain for domains in hosts for domain in domains}:
            there = [who for who, hosts in by_member.items() if any(domain in domains for domains in hosts)]
            most = group.max_per_domain
            assert most is None or len(there) <= most, f"{domain} has {there}, and {most} may share one"
    elif len(by_member) > 1 and all(len(domains) == 1 for domains in hosts):
        # Where a host may be in several domains of a kind there is no one answer.
        assert len(set(hosts)) == 1, f"members are apart: {by_member}"


def mask_of(rows: set[Row], size: int) -> list[bool]:
    mask = np.zeros(size, np.bool_)
    mask[list(rows)] = True
    found: list[bool] = mask.tolist()
    return found
