"""Every list under every filter, against a plain look at everything, while consumers come, change and go.

What the lists are read from (the index of consumers, the columns, the order of providers) is made of small
parts here, so that they are divided, swept and emptied all the time.
"""

import random
from typing import Any, Final

import msgspec
import pytest

from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.http import Request
from berth.api.native import allocations, usage
from berth.api.native.allocations import AllocationsQuery, ConsumersQuery
from berth.api.native.calls import NativeCall, decode_query
from berth.api.native.fields import UNKNOWN_TYPE
from berth.api.native.usage import UsageQuery
from berth.model.events import (
    AggregatesChanged,
    ConsumerChanged,
    Event,
    InventoryChanged,
    Placed,
    ProviderChanged,
    inverse,
)
from berth.model.ids import AggregateId, ClassId, ConsumerId, ProviderId, Row
from berth.model.placement import Consumer, Holdings, Inventory
from berth.view import ConsumerRecord, ProviderRecord, View, sets
from berth.view import consumers as consumer_index
from tests.worlds import uuid_of

pytestmark = pytest.mark.fast

HOSTS: Final = 12
CLASSES: Final = {"VCPU": ClassId(0), "MEMORY_MB": ClassId(1), "DISK_GB": ClassId(2)}
PROJECTS: Final = ("a", "b", "c")
TYPES: Final = ("INSTANCE", "MIGRATION", None)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sets, consumer_index):
        monkeypatch.setattr(module, "BLOCK_MAX", 8)
        monkeypatch.setattr(module, "_BLOCK_FIRST", 4)
    monkeypatch.setattr(allocations, "_TURN", 3)


@pytest.mark.parametrize("seed", range(12))
def test_lists_agree_with_a_look_at_everything(seed: int) -> None:
    rng = random.Random(seed)
    view = View()
    for event in fleet(rng):
        view.apply(event)
    done: list[Event] = []
    for _ in range(40):
        for _ in range(rng.randint(1, 10)):
            event = change(view, rng)
            view.apply(event)
            done.append(event)
        for _ in range(rng.choice([0, 0, len(done) // 2])):
            view.apply(inverse(done.pop()))
        for _ in range(4):
            check_consumers(view, rng)
            check_allocations(view, rng)
            check_usage(view, rng)


# -- what happens -------------------------------------------------------------------------------------


def fleet(rng: random.Random) -> list[Event]:
    """Hosts and cells below some of them; most have VCPU, few have DISK_GB."""
    events: list[Event] = []
    for number in range(HOSTS):
        id = ProviderId(uuid_of(number))
        parent = ProviderId(uuid_of(number - 1)) if number % 4 == 1 else None
        events.append(ProviderChanged(id, Row(number), None, Placed(f"host-{number}", parent)))
        for class_id, share in ((0, 0.9), (1, 0.5), (2, 0.2)):
            if rng.random() < share:
                events.append(InventoryChanged(id, ClassId(class_id), None, Inventory(rng.randint(5, 50))))
        if rng.random() < 0.7:
            joined = (AggregateId(uuid_of(900 + rng.randrange(3))),)
            events.append(AggregatesChanged(id, (), joined))
    return events


def change(view: View, rng: random.Random) -> ConsumerChanged:
    id = ConsumerId(uuid_of(rng.randrange(80)))
    record = view.consumers.get(id)
    before, held = (None, ()) if record is None else (record.consumer, record.held)
    if before is not None and rng.random() < 0.4:
        return ConsumerChanged(id, before, None, held, ())
    after = Consumer(1, rng.choice(PROJECTS), rng.choice("uv"), rng.choice(TYPES), 0, 0)
    return ConsumerChanged(id, before, after, held, some_holdings(view, rng))


def some_holdings(view: View, rng: random.Random) -> Holdings:
    having = [record for record in view.providers.values() if record.inventories]
    return tuple(
        (record.id, tuple((id, rng.randint(1, 9)) for id in rng.sample(ids, rng.randint(1, len(ids)))))
        for record in rng.sample(having, rng.randint(1, 3))
        for ids in [sorted(record.inventories)]
    )


# -- consumers and allocations ------------------------------------------------------------------------


def asked(rng: random.Random, **offered: list[Any]) -> dict[str, str]:
    """Some of the parameters."""
    return {name: str(rng.choice(values)) for name, values in offered.items() if rng.random() < 0.4}


def owner_and_place(rng: random.Random) -> dict[str, str]:
    hosts = [uuid_of(number) for number in range(HOSTS + 1)]
    return asked(
        rng,
        project=[*PROJECTS, "nobody"],
        user=["u", "v"],
        type=["INSTANCE", "MIGRATION", "unknown"],
        provider=hosts,
        tree=hosts,
    )


CALLER: Final = Caller("u", "p", ())
NO_SERVICES: Final[Any] = None
"""A list follows from the view alone."""


def walked(view: View, reader: Any, kind: Any, query: dict[str, str], field: str) -> list[Any]:
    """All pages of a list, put together. No page is empty if there is another behind it."""
    rows: list[Any] = []
    marker: dict[str, str] = {}
    while True:
        text = "&".join(f"{name}={value}" for name, value in (query | marker).items())
        asked = decode_query(text, kind)
        call = NativeCall(
            Request("GET", "/list", text),
            CALLER,
            (),
            NO_SERVICES,
            (),
            query=asked,
            body=None,
            feed=NO_SERVICES,
            tags=NO_SERVICES,
            overview=NO_SERVICES,
        )
        answer = msgspec.json.decode(msgspec.json.encode(reader(view, call)))
        rows += answer[field]
        if answer["next"] is None:
            return rows
        assert answer[field]
        marker = {"marker": answer["next"].rpartition("marker=")[2]}


def is_owned(record: ConsumerRecord, query: dict[str, str]) -> bool:
    it = record.consumer
    facts = {"project": it.project, "user": it.user, "type": it.type or UNKNOWN_TYPE}
    return all(query.get(name, value) == value for name, value in facts.items())


def is_there(view: View, provider: ProviderId, query: dict[str, str]) -> bool:
    tree = [record.id for record in view.providers[provider].tree()]
    return query.get("provider", provider) == provider and query.get("tree", provider) in tree


def check_consumers(view: View, rng: random.Random) -> None:
    query = owner_and_place(rng)
    found = walked(
        view,
        allocations.list_consumers,
        ConsumersQuery,
        query | {"limit": str(rng.choice([1, 3, 100]))},
        "consumers",
    )
    assert [row["uuid"] for row in found] == [
        id
        for id, record in sorted(view.consumers.items())
        if is_owned(record, query) and any(is_there(view, provider, query) for provider, _ in record.held)
    ]


def check_allocations(view: View, rng: random.Random) -> None:
    query = owner_and_place(rng) | asked(rng, resource_class=list(CLASSES))
    limit = {"limit": str(rng.choice([1, 4, 100]))}
    found = walked(view, allocations.list_allocations, AllocationsQuery, query | limit, "allocations")
    wanted = CLASSES.get(query.get("resource_class", ""))
    assert [(row["consumer_uuid"], row["resource_provider_uuid"]) for row in found] == [
        (id, provider)
        for id, record in sorted(view.consumers.items())
        if is_owned(record, query)
        for provider, amounts in record.held
        if is_there(view, provider, query) and (wanted is None or wanted in dict(amounts))
    ]


# -- usage --------------------------------------------------------------------------------------------


def check_usage(view: View, rng: random.Random) -> None:
    by = rng.choice(["provider", "root", "aggregate", "resource_class", "project"])
    aggregates = [uuid_of(900 + number) for number in range(3)]
    query = asked(
        rng,
        tree=[uuid_of(number) for number in range(HOSTS)],
        aggregate=aggregates,
        resource_class=list(CLASSES),
    )
    if by != "project":
        query |= asked(rng, project=list(PROJECTS))
    limit = {"limit": str(rng.choice([1, 2, 100]))}
    found = walked(view, usage.show_usage, UsageQuery, {"by": by} | query | limit, "usage")
    chosen = [
        record
        for record in view.providers.values()
        if is_there(view, record.id, {"tree": query.get("tree", record.id)})
        and query.get("aggregate") in (None, *record.aggregates)
    ]
    classes = [query["resource_class"]] if "resource_class" in query else list(CLASSES)
    if by == "project":
        expected: dict[str, Any] = used_by_project(view, chosen, classes)
        assert {row["key"]: row["used"] for row in found} == expected
    else:
        expected = sums(view, by, chosen, classes, query.get("project"))
        assert {row["key"]: row["resources"] for row in found} == expected
    assert [row["key"] for row in found] == sorted(expected)


def held(view: View, record: ProviderRecord, class_id: ClassId, project: str | None) -> int:
    return sum(
        dict(amounts).get(class_id, 0)
        for holder in view.consumers.values()
        for provider, amounts in holder.held
        if provider == record.id and project in (None, holder.consumer.project)
    )


def used_by_project(
    view: View, chosen: list[ProviderRecord], classes: list[str]
) -> dict[str, dict[str, int]]:
    used = {
        project: {
            name: sum(held(view, record, CLASSES[name], project) for record in chosen) for name in classes
        }
        for project in PROJECTS
    }
    some = {project: {name: n for name, n in amounts.items() if n} for project, amounts in used.items()}
    return {project: amounts for project, amounts in some.items() if amounts}


def sums(
    view: View, by: str, chosen: list[ProviderRecord], classes: list[str], project: str | None
) -> dict[str, dict[str, dict[str, int]]]:
    found: dict[str, dict[str, dict[str, int]]] = {}
    for record in chosen:
        # A provider without any inventory has a row too, unless a class was asked for.
        if by != "resource_class" and len(classes) > 1:
            for key in keys(by, record, ""):
                found.setdefault(key, {})
        for name in classes:
            inventory = record.inventories.get(CLASSES[name])
            for key in keys(by, record, name) if inventory else ():
                assert inventory is not None
                none = {"capacity": 0, "used": 0, "free": 0}
                amount = found.setdefault(key, {}).setdefault(name, none)
                everybody = held(view, record, CLASSES[name], None)
                amount["capacity"] += inventory.capacity
                amount["used"] += held(view, record, CLASSES[name], project)
                amount["free"] += max(inventory.capacity - everybody, 0)
    return found


def keys(by: str, record: ProviderRecord, class_name: str) -> tuple[str, ...]:
    match by:
        case "provider":
            return (record.id,)
        case "root":
            return (record.root.id,)
        case "aggregate":
            return record.aggregates
    return (class_name,)
