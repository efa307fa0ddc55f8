"""A region with clusters: hosts that may be in racks, and somebody who builds and deletes servers and keeps
clusters when a test says so."""

from typing import Any

from berth.clusters.reconciler import is_due, propose_next
from berth.ledger import remove_record
from berth.model.clusters import Cluster
from berth.model.commands import Enact
from berth.model.saga_runs import Outbox
from berth.runtime.ids import Ids
from berth.sagas.proposals import Context, read_quotas
from tests.options import scheduler_options
from tests.worlds import CIRROS, INVENTORY, LARGE, SECRET, SMALL, HttpAnswer, RegionWorld, uuid_of

CLUSTERS = "/berth/v1/clusters"
CELL, RACKS = 500, 600
_IDS = Ids(seed=3)


async def fleet(region: RegionWorld, hosts: int, racks: int = 0) -> None:
    """Hosts host-1.. of one cell, in racks r1.. in turn, where there are racks."""
    for number in range(1, hosts + 1):
        await region.host(number, INVENTORY)
        rack = [uuid_of(RACKS + 1 + (number - 1) % racks)] if racks else []
        await region.join(number, uuid_of(CELL), *rack)
    await label(region, CELL, "cell", "cell-1")
    for number in range(1, racks + 1):
        await label(region, RACKS + number, "rack", f"r{number}")
    await region.put(SMALL, LARGE, SECRET, CIRROS)


async def label(region: RegionWorld, number: int, kind: str, name: str) -> None:
    body = {"aggregate": {"kind": kind, "name": name}}
    await region.change("PUT", f"/berth/v1/aggregates/{uuid_of(number)}", body)


def data(count: int, **fields: Any) -> dict[str, Any]:
    """A node group of data nodes."""
    return {
        "name": "data",
        "flavor": "small",
        "image": "cirros",
        "count": count,
        "processes": ["datanode"],
        **fields,
    }


def cluster(*groups: dict[str, Any], ratio: int | None = 2, **fields: Any) -> dict[str, Any]:
    """The body of a request for a cluster whose data nodes keep away from each other."""
    body: dict[str, Any] = {"name": "hadoop", "anti_affinity": ["datanode"], "node_groups": list(groups)}
    if ratio is not None:
        body["anti_affinity_ratio"] = ratio
    return {"cluster": {**body, **fields}}


async def created(region: RegionWorld, body: dict[str, Any], **how: Any) -> Any:
    answer = await region.ask("POST", CLUSTERS, body, **how)
    assert answer.status == 202, answer.body
    return answer.json["cluster"]


async def shown(region: RegionWorld, id: str, **how: Any) -> Any:
    answer = await region.ask("GET", f"{CLUSTERS}/{id}", **how)
    assert answer.status == 200, answer.body
    return answer.json["cluster"]


async def scaled(region: RegionWorld, id: str, **body: Any) -> HttpAnswer:
    return await region.ask("POST", f"{CLUSTERS}/{id}/scale", body)


async def kept(region: RegionWorld, error: str | None = None) -> None:
    """Orders are carried out and clusters brought on until there is nothing left to do now. With an error,
    nothing can be built."""
    for _ in range(1_000):
        waiting = [outbox for outbox in region.engine.view.records.all(Outbox) if outbox.run is not None]
        for outbox in waiting:
            await _carried_out(region, outbox, error)
        now_s = region.clock.now_ns() // 10**9
        view = region.engine.view
        due = [one for one in view.records.all(Cluster) if is_due(view, one, now_s)]
        before = view.index
        for one in due:
            await _brought_on(region, one)
        # What could not be brought on now is left alone for a while.
        if not waiting and view.index == before:
            return
    raise AssertionError("there is no end to it")


async def _carried_out(region: RegionWorld, outbox: Outbox, error: str | None) -> None:
    await region.enact(lambda view, _: Enact((remove_record(view, outbox),)))
    assert outbox.run is not None
    await region.carry_out(outbox.run, error if outbox.run.saga == "create" else None)


async def _brought_on(region: RegionWorld, one: Cluster) -> None:
    quotas = read_quotas(region.settings)
    asked = Context("req-reconciler", one.project, one.user, _IDS, scheduler_options(), quotas=quotas)
    await region.enact(lambda view, now_s: propose_next(view, now_s, asked, one.id) or Enact(()))
