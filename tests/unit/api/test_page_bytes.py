"""Pages end at so many entries or so many bytes, and one after the other they are the whole list."""

import random
from typing import Any

import pytest

from berth.api.kernel import paging
from berth.api.native import allocations, event_pages
from berth.model.clusters import Cluster
from berth.model.commands import Claim, Command, CreateGroup, Enact, LabelAggregate, ReplaceAllocations
from berth.model.events import AnyRecord, Origin, RecordChanged
from berth.model.groups import Group
from berth.model.ids import AggregateId, ConsumerId, GroupId, ProviderId
from berth.model.placement import Label
from berth.model.servers import Action, Flavor, Host, Image, Migration, Place, Server
from tests.worlds import RegionWorld, uuid_of

pytestmark = pytest.mark.fast

COUNT = 30
SERVER = uuid_of(1)
ADMIN = {"x-roles": "admin", "openstack-api-version": "compute 2.94"}
FLAVOR = Flavor(id="f", name="f", vcpus=1, memory_mb=1)
PLACE = Place(uuid_of(1), "host-1", "cell-1")

LISTS = {
    "/compute/v2.1/servers": "servers",
    "/compute/v2.1/servers/detail": "servers",
    "/compute/v2.1/flavors/detail": "flavors",
    "/compute/v2.1/os-migrations": "migrations",
    "/compute/v2.1/os-hypervisors/detail": "hypervisors",
    f"/compute/v2.1/servers/{SERVER}/os-instance-actions": "instanceActions",
    "/image/v2/images": "images",
    "/berth/v1/consumers": "consumers",
    "/berth/v1/allocations": "allocations",
    "/berth/v1/aggregates": "aggregates",
    "/berth/v1/groups": "groups",
    "/berth/v1/hosts": "hosts",
    "/berth/v1/clusters": "clusters",
    "/berth/v1/usage?by=root": "usage",
}


def records(rng: random.Random) -> list[AnyRecord]:
    """Of every kind some, each of another size."""
    found: list[AnyRecord] = []
    for number in range(1, COUNT + 1):
        id, text = uuid_of(number), "v" * rng.choice((0, 10, 100, 200))
        texts = {f"k{n}": text for n in range(rng.randrange(10))}
        found += [
            Server(
                id=id,
                name="s",
                project="admin",
                user="u",
                flavor=FLAVOR,
                metadata=texts,
                created_at_s=number % 7,
            ),
            Flavor(id=id, name=id, vcpus=1, memory_mb=1, extra_specs=texts),
            Image(id=id, name=text, owner="admin", properties=texts, created_at_s=number % 7),
            Action(
                id=id,
                server=SERVER,
                name="create",
                request_id=f"req-{number}",
                project="admin",
                user="u",
                message=text,
                started_at_s=number,
                updated_at_s=number,
            ),
            Migration(
                id=id,
                number=number,
                server=SERVER,
                type="migration",
                status="error",
                source=PLACE,
                dest=PLACE,
                flavor_before=FLAVOR,
                flavor_after=FLAVOR,
                project="admin",
                user="u" + text,
            ),
            Host(id=id, number=number, name=f"host-{number}", cell="cell-1"),
            Cluster(id=id, name="c" + text, project="admin", user="u"),
        ]
    return found


async def fill(region: RegionWorld, rng: random.Random) -> None:
    for number in range(1, COUNT + 1):
        await region.host(number, {"VCPU": 8})
    commands: list[Command] = [Enact(tuple(RecordChanged(None, record) for record in records(rng)))]
    for number in range(1, COUNT + 1):
        text = "v" * rng.choice((0, 10, 100, 200))
        group = Group("g" + text, "affinity", "host", None, None, "admin", "u", number)
        held = ((ProviderId(uuid_of(number)), (("VCPU", 1),)),)
        claim = Claim(ConsumerId(uuid_of(100 + number)), held, "admin", "u" + text, None, "INSTANCE")
        label = Label(None, "a", (("k", text),))
        commands += [
            CreateGroup(GroupId(uuid_of(number)), group),
            ReplaceAllocations((claim,)),
            LabelAggregate(AggregateId(uuid_of(number)), label),
        ]
    for command in commands:
        outcome = await region.engine.submit(command, Origin("req", None, None, "test"), lambda view, _: None)
        assert outcome is None


def limit_bytes(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    for module in (paging, allocations, event_pages):
        monkeypatch.setattr(module, "PAGE_BYTES_MAX", size)


async def walk(region: RegionWorld, path: str, name: str, query: str = "") -> tuple[list[Any], list[int]]:
    """All entries of a list, page by page, and how many each page had."""
    entries: list[Any] = []
    counts: list[int] = []
    following: str | None = path + query
    while following is not None:
        answer = await region.ask("GET", following, headers=ADMIN)
        assert answer.status == 200, answer.body
        entries += answer.json[name]
        counts.append(len(answer.json[name]))
        assert len(counts) <= COUNT + 1, "pages without an end"
        following = next_of(answer.json, name)
    return entries, counts


def next_of(body: Any, name: str) -> str | None:
    link: str | None = body.get("next")
    for links in (body.get(f"{name}_links"), body.get("links") if name == "instanceActions" else None):
        if links:
            link = links[0]["href"].removeprefix("http://localhost")
    return f"/image{link}" if link is not None and link.startswith("/v2/") else link


@pytest.mark.parametrize("seed", range(3))
async def test_the_pages_are_the_whole_list(
    region: RegionWorld, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)

    await fill(region, rng)
    for path, name in LISTS.items():
        limit_bytes(monkeypatch, 1 << 30)
        whole, _ = await walk(region, path, name, ("&" if "?" in path else "?") + "limit=1000")
        assert len(whole) >= COUNT, path
        for size in (1, rng.randrange(300, 3000)):
            limit_bytes(monkeypatch, size)
            for limit in ("", f"{'&' if '?' in path else '?'}limit={rng.randrange(1, 12)}"):
                entries, counts = await walk(region, path, name, limit)
                assert entries == whole, (path, size, limit)
                assert size > 1 or max(counts) == 1, path


async def test_a_page_of_groups_ends_and_goes_on_at_its_offset(
    region: RegionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nova has no links here: who asks goes on behind as many as came."""
    await fill(region, random.Random(1))
    path = "/compute/v2.1/os-server-groups"
    whole = (await region.ask("GET", path, headers=ADMIN)).json["server_groups"]
    limit_bytes(monkeypatch, 1000)
    found: list[Any] = []
    while page := (await region.ask("GET", f"{path}?offset={len(found)}", headers=ADMIN)).json[
        "server_groups"
    ]:
        assert len(page) < len(whole)
        found += page
    assert found == whole


async def test_a_page_of_events_ends_between_two_indexes(
    region: RegionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, COUNT + 1):
        await region.host(number, {"VCPU": 8})
    whole = (await region.get("/berth/v1/events?limit=1000")).json["events"]
    limit_bytes(monkeypatch, 2000)
    found: list[Any] = []
    last, pages = 0, 0
    while page := (await region.get(f"/berth/v1/events?limit=1000&after={last}")).json["events"]:
        found += page
        last, pages = page[-1]["index"], pages + 1
    assert found == whole
    assert pages > 5
