"""What the Placement API must say, worked out from plain facts: the naive model of its clients.

A request is read as the command that it asks for, and an answer is made from lists of facts. No rule and no
rendering is shared with the API: the judge of commands is the oracle. It speaks the newest microversion, and
knows the requests that simulated clients send; others are none of its business.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from berth.model import commands as c
from berth.model.events import (
    AggregatesChanged,
    ConsumerChanged,
    Event,
    GroupChanged,
    InventoryChanged,
    MemberChanged,
    ProviderChanged,
    ProviderStamped,
    ResourceClassChanged,
    TraitChanged,
    TraitsChanged,
)
from berth.model.groups import HOST, Group
from berth.model.ids import AggregateId, ConsumerId, GroupId, ProviderId
from berth.model.placement import Inventory
from berth.oracle import groups
from berth.oracle.facts import (
    AllocationFact,
    ClassFact,
    ConsumerFact,
    Facts,
    GroupFact,
    InventoryFact,
    MemberFact,
    ProviderFact,
)
from berth.oracle.ledger import Oracle

UNKNOWN: Final = object()
"""The model does not know what must be answered."""
_FIELDS: Final = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")
_PROBE: Final = ConsumerId("ffffffff-ffff-4fff-bfff-ffffffffffff")
"""A consumer that holds nothing: whether there is room is found out by claiming for it."""


# -- facts --------------------------------------------------------------------------------------


def apply(facts: Facts, event: Event) -> None:
    """Bring lists of facts to what an event says."""
    match event:
        case ResourceClassChanged(id=id, after=named):
            facts.classes = [fact for fact in facts.classes if fact.number != id]
            if named is not None:
                facts.classes.append(ClassFact(id, named.name, 0))
        case TraitChanged(name=name, after=made):
            facts.traits = [(one, at) for one, at in facts.traits if one != name]
            if made is not None:
                facts.traits.append((name, 0))
        case ProviderChanged(id=id, after=placed):
            old = facts.provider(id)
            facts.providers = [fact for fact in facts.providers if fact.id != id]
            if placed is not None:
                blank = ProviderFact(id, "", None, 0, 0, 0)
                _put(facts, old or blank, name=placed.name, parent=placed.parent)
        case ProviderStamped(id=id, after=stamp):
            _change(facts, id, generation=stamp.generation)
        case TraitsChanged(provider=id, after=traits):
            _change(facts, id, traits=frozenset(traits))
        case AggregatesChanged(provider=id, after=aggregates):
            _change(facts, id, aggregates=frozenset(aggregates))
        case InventoryChanged(provider=id, resource_class=number, after=inventory):
            facts.inventories = [
                fact for fact in facts.inventories if (fact.provider, fact.resource_class) != (id, number)
            ]
            if inventory is not None:
                dated = msgspec.structs.replace(inventory, written_at_s=0)
                facts.inventories.append(InventoryFact(id, number, dated))
        case ConsumerChanged(id=consumer, after=record, held_after=held):
            facts.consumers = [fact for fact in facts.consumers if fact.id != consumer]
            facts.allocations = [fact for fact in facts.allocations if fact.consumer != consumer]
            if record is not None:
                facts.consumers.append(
                    ConsumerFact(consumer, record.generation, record.project, record.user, record.type, 0, 0)
                )
            facts.allocations += [
                AllocationFact(consumer, provider, number, amount)
                for provider, amounts in held
                for number, amount in amounts
            ]
        case GroupChanged(id=group, after=rule):
            facts.groups = [fact for fact in facts.groups if fact.id != group]
            if rule is not None:
                facts.groups.append(GroupFact(group, rule))
        case MemberChanged(consumer=member, after=joined):
            facts.members = [fact for fact in facts.members if fact.consumer != member]
            if joined is not None:
                facts.members.append(MemberFact(member, joined.group, joined.stands_for))


def _change(facts: Facts, id: ProviderId, **changes: Any) -> None:
    fact = facts.provider(id)
    assert fact is not None, f"provider {id} is changed and does not exist"
    facts.providers = [one for one in facts.providers if one.id != id]
    _put(facts, fact, **changes)


def _put(facts: Facts, fact: ProviderFact, **changes: Any) -> None:
    facts.providers.append(ProviderFact(**{**_asdict(fact), **changes}))


def _asdict(fact: ProviderFact) -> dict[str, Any]:
    return {name: getattr(fact, name) for name in ProviderFact.__dataclass_fields__}


def content(facts: Facts) -> tuple[object, ...]:
    """All that facts say, in no order and without the times at which it was written. Custom classes are told
    by their names: their numbers are the ledger's business."""
    return (
        frozenset(fact.name for fact in facts.classes),
        frozenset(name for name, _ in facts.traits),
        frozenset((f.id, f.name, f.parent, f.generation, f.traits, f.aggregates) for f in facts.providers),
        frozenset(
            (f.provider, facts.class_name(f.resource_class), _fields(f.inventory)) for f in facts.inventories
        ),
        frozenset((f.id, f.generation, f.project, f.user, f.type) for f in facts.consumers),
        frozenset(
            (f.consumer, f.provider, facts.class_name(f.resource_class), f.amount) for f in facts.allocations
        ),
        frozenset((f.id, f.group.policy, f.group.max_per_domain) for f in facts.groups),
        frozenset((f.consumer, f.group, f.stands_for) for f in facts.members),
    )


def _fields(inventory: Inventory) -> tuple[float, ...]:
    return tuple(getattr(inventory, name) for name in _FIELDS)


# -- requests -----------------------------------------------------------------------------------


def command_of(method: str, path: str, body: Any) -> c.LedgerCommand | None:
    """The command that a write asks for; None if it asks for none that is known here."""
    match (method, *path.strip("/").split("/")):
        case ("PUT", "resource_classes", name):
            return c.CreateResourceClass(name, exist_ok=True)
        case ("DELETE", "resource_classes", name):
            return c.DeleteResourceClass(name)
        case ("PUT", "traits", name):
            return c.CreateTrait(name)
        case ("DELETE", "traits", name):
            return c.DeleteTrait(name)
        case ("POST", "resource_providers"):
            parent = body.get("parent_provider_uuid")
            return c.CreateProvider(ProviderId(body["uuid"]), body["name"], parent)
        case ("PUT", "resource_providers", id):
            parent = body.get("parent_provider_uuid", msgspec.UNSET)
            return c.UpdateProvider(ProviderId(id), body["name"], parent, may_reparent=True)
        case ("DELETE", "resource_providers", id):
            return c.DeleteProvider(ProviderId(id))
        case (_, "resource_providers", id, *what):
            return _change_of_provider(method, ProviderId(id), what, body)
        case ("PUT", "allocations", id):
            return c.ReplaceAllocations((_claim(id, body),))
        case ("POST", "allocations"):
            return c.ReplaceAllocations(_claims(body))
        case ("DELETE", "allocations", id):
            return c.DeleteAllocations(ConsumerId(id))
        case ("POST", "reshaper"):
            new = tuple(
                c.NewInventories(ProviderId(id), one["resource_provider_generation"], _inventories(one))
                for id, one in body["inventories"].items()
            )
            return c.Reshape(new, _claims(body["allocations"]))
        case ("POST", "berth", "v1", "groups"):
            asked = body["group"]
            rule = Group(asked["name"], asked["policy"], HOST, asked["max_per_domain"], None, "", "", 0)
            return c.CreateGroup(GroupId(asked["uuid"]), rule, _consumers(asked["members"]))
        case ("PATCH", "berth", "v1", "groups", id):
            return c.ChangeGroup(GroupId(id), **body["group"])
        case ("POST", "berth", "v1", "groups", id, "members"):
            return c.ChangeMembers(GroupId(id), _consumers(body["add"]), _consumers(body["remove"]))
    return None


def _consumers(ids: Iterable[str]) -> tuple[ConsumerId, ...]:
    return tuple(map(ConsumerId, ids))


def _change_of_provider(method: str, id: ProviderId, what: list[str], body: Any) -> c.LedgerCommand | None:
    generation = body.get("resource_provider_generation") if isinstance(body, dict) else None
    match (method, *what):
        case ("PUT", "inventories"):
            return c.SetInventories(id, generation, _inventories(body))
        case ("DELETE", "inventories"):
            return c.SetInventories(id, None, {})
        case ("POST", "inventories"):
            return c.AddInventory(id, body["resource_class"], _inventory(body))
        case ("PUT", "inventories", name):
            return c.PutInventory(id, body["resource_provider_generation"], name, _inventory(body))
        case ("DELETE", "inventories", name):
            return c.DeleteInventory(id, name)
        case ("PUT", "traits"):
            return c.SetTraits(id, generation, frozenset(body["traits"]))
        case ("DELETE", "traits"):
            return c.SetTraits(id, None, frozenset())
        case ("PUT", "aggregates"):
            return c.SetAggregates(id, generation, tuple(map(AggregateId, body["aggregates"])))
    return None


def _inventories(body: Any) -> dict[str, Inventory]:
    return {name: _inventory(one) for name, one in body["inventories"].items()}


def _inventory(body: Any) -> Inventory:
    return Inventory(**{name: body[name] for name in _FIELDS if name in body})


def _claims(body: Any) -> tuple[c.Claim, ...]:
    return tuple(_claim(id, one) for id, one in body.items())


def _claim(consumer: str, body: Any) -> c.Claim:
    wanted = tuple(
        (ProviderId(id), tuple(one["resources"].items())) for id, one in body["allocations"].items()
    )
    project, user = body["project_id"], body["user_id"]
    generation, kind = body["consumer_generation"], body["consumer_type"]
    return c.Claim(ConsumerId(consumer), wanted, project, user, generation, kind)


# -- answers ------------------------------------------------------------------------------------


def answer_of(facts: Oracle, path: str) -> Any:
    """What must be answered to a GET, made comparable; None: that there is no such thing."""
    parts = urlsplit(path)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    match parts.path.strip("/").split("/"):
        case ["allocations", id]:
            return _allocations(facts, ConsumerId(id))
        case ["resource_providers"]:
            return {fact.id: _provider(facts, fact) for fact in facts.providers}
        case ["resource_providers", id, *what]:
            fact = facts.provider(ProviderId(id))
            return None if fact is None else _about(facts, fact, what)
        case ["usages"]:
            return _usages(facts, query["project_id"])
        case ["traits"]:
            return sorted(name for name, _ in facts.traits)
        case ["traits", name]:
            return {} if facts.has_trait(name) else None
        case ["resource_classes", name]:
            return {"name": name} if facts.class_number(name) is not None else None
        case ["berth", "v1", "groups", id]:
            return _group(facts, GroupId(id))
    return UNKNOWN


def _group(facts: Facts, id: GroupId) -> Any:
    """The rule of a group, where each member is, and how many there are on each host."""
    rule = facts.group(id)
    if rule is None:
        return None
    members = {
        fact.consumer: (fact.stands_for, sorted(groups.hosts_of(facts, fact.consumer)))
        for fact in facts.members
        if fact.group == id
    }
    counts = Counter(host for _, host in groups.standing(facts, id))
    return {"rule": (rule.policy, rule.max_per_domain), "members": members, "counts": dict(counts)}


def _allocations(facts: Facts, id: ConsumerId) -> Any:
    consumer = facts.consumer(id)
    if consumer is None or not facts.held(id):
        return {"allocations": {}}
    return {
        "allocations": {
            provider: {"resources": resources, "generation": _generation(facts, provider)}
            for provider, resources in _held(facts, id).items()
        },
        "project_id": consumer.project,
        "user_id": consumer.user,
        "consumer_generation": consumer.generation,
        "consumer_type": consumer.type,
    }


def _held(facts: Facts, id: ConsumerId) -> dict[ProviderId, dict[str, int]]:
    held: dict[ProviderId, dict[str, int]] = {}
    for (provider, number), amount in facts.held(id).items():
        held.setdefault(provider, {})[facts.class_name(number)] = amount
    return held


def _generation(facts: Facts, id: ProviderId) -> int:
    fact = facts.provider(id)
    assert fact is not None, f"{id} is held and does not exist"
    return fact.generation


def _provider(facts: Facts, fact: ProviderFact) -> dict[str, Any]:
    return {
        "uuid": fact.id,
        "name": fact.name,
        "generation": fact.generation,
        "parent_provider_uuid": fact.parent,
        "root_provider_uuid": facts.root(fact.id),
    }


def _about(facts: Facts, fact: ProviderFact, what: list[str]) -> Any:
    stamped = {"resource_provider_generation": fact.generation}
    inventories = {
        facts.class_name(one.resource_class): one for one in facts.inventories if one.provider == fact.id
    }
    match what:
        case []:
            return _provider(facts, fact)
        case ["inventories"]:
            found = {name: _record(one.inventory) for name, one in inventories.items()}
            return {**stamped, "inventories": found}
        case ["inventories", name]:
            # A generation of 0 is left out here, as it has always been.
            shown = stamped if fact.generation else {}
            return {**shown, **_record(inventories[name].inventory)} if name in inventories else None
        case ["usages"]:
            used = {name: facts.used(fact.id, one.resource_class) for name, one in inventories.items()}
            return {**stamped, "usages": used}
        case ["traits"]:
            return {**stamped, "traits": sorted(fact.traits)}
        case ["aggregates"]:
            return {**stamped, "aggregates": sorted(fact.aggregates)}
        case ["allocations"]:
            holders = [one.id for one in facts.consumers if fact.id in _held(facts, one.id)]
            return {**stamped, "allocations": {id: _held_on(facts, id, fact.id) for id in holders}}
    return UNKNOWN


def _record(inventory: Inventory) -> dict[str, float]:
    return {name: getattr(inventory, name) for name in _FIELDS}


def _held_on(facts: Facts, id: ConsumerId, provider: ProviderId) -> dict[str, Any]:
    consumer = facts.consumer(id)
    assert consumer is not None, f"{id} holds something and does not exist"
    return {"resources": _held(facts, id)[provider], "consumer_generation": consumer.generation}


def _usages(facts: Facts, project: str) -> dict[str, Any]:
    usages: dict[str, dict[str, int]] = {}
    for (owner, _, kind), (count, amounts) in facts.totals().items():
        if owner == project:
            total = usages.setdefault(str(kind), {"consumer_count": 0})
            total["consumer_count"] += count
            for number, amount in amounts.items():
                name = facts.class_name(number)
                total[name] = total.get(name, 0) + amount
    return {"usages": usages}


def comparable(path: str, body: Any) -> Any:
    """The body of an answer to a GET, without what the model does not know, and in its order."""
    match urlsplit(path).path.strip("/").split("/"):
        case ["resource_providers"]:
            return {one["uuid"]: _without_links(one) for one in body["resource_providers"]}
        case ["resource_providers", _] | ["resource_classes", _]:
            return _without_links(body)
        case ["resource_providers", _, ("traits" | "aggregates") as what]:
            return {**body, what: sorted(body[what])}
        case ["traits"]:
            return sorted(body["traits"])
        case ["traits", _]:
            return {}
        case ["berth", "v1", "groups", *_]:
            return _comparable_group(body["group"])
    return body


def _comparable_group(group: dict[str, Any]) -> dict[str, Any]:
    members = {
        one["consumer_uuid"]: (one["stands_for"], sorted(place["host_uuid"] for place in one["standing"]))
        for one in group["members"]
    }
    counts = {one["domain"]: one["members"] for one in group["domains"] if one["members"]}
    return {"rule": (group["policy"], group["max_per_domain"]), "members": members, "counts": counts}


def _without_links(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != "links"}


# -- candidates ---------------------------------------------------------------------------------


def is_right_about_candidates(facts: Oracle, path: str, body: Any) -> bool:
    """Whether an answer to GET /allocation_candidates?resources=... is right: what it says of providers is
    so, each of the requests that it offers could be claimed, and a provider that has room for all of it alone
    is among them."""
    asked = parse_qs(urlsplit(path).query)["resources"][0]
    resources = {name: int(amount) for name, _, amount in (one.partition(":") for one in asked.split(","))}
    offered = [one["allocations"] for one in body["allocation_requests"]]
    summaries = body["provider_summaries"]
    alone = [
        {fact.id: {"resources": resources}}
        for fact in facts.providers
        if _may_claim(facts, {fact.id: {"resources": resources}})
    ]
    return (
        all(_summary(facts, ProviderId(id)) == _sorted(one) for id, one in summaries.items())
        and all(id in summaries for one in offered for id in one)
        and all(_may_claim(facts, one) for one in offered)
        and all(one in offered for one in alone)
    )


def _summary(facts: Facts, id: ProviderId) -> Any:
    fact = facts.provider(id)
    if fact is None:
        return None
    resources = {
        facts.class_name(one.resource_class): {
            "capacity": int((one.inventory.total - one.inventory.reserved) * one.inventory.allocation_ratio),
            "used": facts.used(id, one.resource_class),
        }
        for one in facts.inventories
        if one.provider == id
    }
    tree = {"parent_provider_uuid": fact.parent, "root_provider_uuid": facts.root(id)}
    return {"resources": resources, "traits": sorted(fact.traits), **tree}


def _sorted(summary: dict[str, Any]) -> dict[str, Any]:
    return {**summary, "traits": sorted(summary["traits"])}


def _may_claim(facts: Oracle, allocations: dict[Any, Any]) -> bool:
    wanted: Iterable[Any] = (
        (ProviderId(id), tuple(one["resources"].items())) for id, one in allocations.items()
    )
    claim = c.Claim(_PROBE, tuple(wanted), "project", "user", None, "INSTANCE")
    return not facts.copy().carry_out(c.ReplaceAllocations((claim,)), 0)
