"""Somebody else has changed what a server holds when an operation begins, or while it is under way: fail,
retry and merge, for every operation that writes into the books."""

import pytest

from berth.model import commands as c
from berth.model.ids import ConsumerId
from berth.model.rejections import ServerBusy, ServerChangedByOthers, ServerHoldsAlready
from berth.model.servers import ConflictPolicy, Server
from berth.operations.conflicts import as_dict, held_now
from berth.operations.doctor import examine
from tests.unit.operations.regions import BANDWIDTH, Faults, Region, nic_id, prepared

pytestmark = pytest.mark.fast

MOVES = ["resize", "migrate", "live_migrate", "evacuate"]
ALL_POLICIES: list[ConflictPolicy] = ["fail", "retry", "merge"]
Amounts = dict[str, dict[str, int]]


def host_of(region: Region) -> int:
    place = region.server("s").place
    assert place is not None
    return int(place.name.removeprefix("host-"))


def add_bandwidth(region: Region, amount: int = 100) -> Amounts:
    """Another service gives the server bandwidth, past Berth. What it has added."""
    card = nic_id(host_of(region))
    region.claim("s", *held_now(region.view, "s"), (card, ((BANDWIDTH, amount),)))
    return {card: {BANDWIDTH: amount}}


@pytest.mark.parametrize("name", [*MOVES, "confirm", "revert", "delete", "shelve_offload"])
def test_fail_refuses_and_nothing_changes(name: str) -> None:
    region = prepared(name)
    add_bandwidth(region)
    before = region.view.state()
    refused = region.begin(name, "s")
    assert isinstance(refused, ServerChangedByOthers)
    assert (refused.id, refused.current, refused.expected) == (
        "s",
        (refused.expected or 0) + 1,
        refused.expected,
    )
    assert region.view.state() == before


@pytest.mark.parametrize("name", MOVES)
def test_retry_moves_what_there_is(name: str) -> None:
    region = prepared(name)
    source, extra = region.held("s"), add_bandwidth(region)
    assert region.begin(name, "s", "retry") is None
    assert region.held(region.migration("s").id) == source | extra
    assert not region.held("s").keys() & extra.keys()
    region.carry_out(Faults(["prepare", "build"]))
    assert region.held("s") == source | extra, "what was undone is as it was"
    assert examine(region.view, region.now_s) == ()


@pytest.mark.parametrize("name", MOVES)
def test_merge_keeps_what_others_have_added(name: str) -> None:
    region = prepared(name)
    source, extra = region.held("s"), add_bandwidth(region)
    assert region.begin(name, "s", "merge") is None
    assert region.held(region.migration("s").id) == source
    assert region.held("s").items() > extra.items()
    region.carry_out()
    assert region.held("s").items() > extra.items()
    assert as_dict(region.server("s").kept) == extra
    assert examine(region.view, region.now_s) == ()


@pytest.mark.parametrize("name", MOVES)
def test_merge_keeps_it_where_the_move_is_undone(name: str) -> None:
    region = prepared(name)
    source, extra = region.held("s"), add_bandwidth(region)
    assert region.begin(name, "s", "merge") is None
    region.carry_out(Faults(["prepare", "build"]))
    assert region.held("s") == source | extra
    assert region.held(region.migration("s").id) == {}
    assert examine(region.view, region.now_s) == ()


def test_merge_keeps_it_at_the_alternates() -> None:
    region = prepared("migrate")
    extra = add_bandwidth(region)
    assert region.begin("migrate", "s", "merge") is None
    work = region.carry_out(Faults(once=["prepare"]))
    assert work.attempt == 2
    assert region.held("s").items() > extra.items()


def test_what_was_kept_once_stays_kept_in_later_moves() -> None:
    region = prepared("migrate")
    extra = add_bandwidth(region)
    assert region.begin("migrate", "s", "merge") is None
    region.carry_out()
    region.run("confirm", "s")
    region.run("migrate", "s")
    assert region.held("s").items() > extra.items()
    region.run("revert", "s")
    assert region.held("s").items() > extra.items()
    assert region.begin("migrate", "s", "retry") is None
    region.carry_out()
    region.run("confirm", "s")
    assert not region.held("s").keys() & extra.keys()
    assert region.server("s").kept == ()


@pytest.mark.parametrize("policy", ["retry", "merge"])
def test_confirm_leaves_what_others_have_added(policy: ConflictPolicy) -> None:
    region = prepared("confirm")
    extra = add_bandwidth(region)
    held = region.held("s")
    assert region.begin("confirm", "s", policy) is None
    region.carry_out()
    assert region.held("s") == held
    assert extra.items() <= held.items()
    assert len(region.view.consumers) == 1
    assert examine(region.view, region.now_s) == ()


def test_revert_by_retry_gives_back_and_by_merge_keeps_too() -> None:
    for policy in ("retry", "merge"):
        region = prepared("revert")
        source = region.held(region.migration("s").id)
        extra = add_bandwidth(region)
        assert region.begin("revert", "s", policy) is None
        region.carry_out()
        assert region.held("s") == (source if policy == "retry" else source | extra)
        assert len(region.view.consumers) == 1
        assert examine(region.view, region.now_s) == ()


@pytest.mark.parametrize("policy", ["retry", "merge"])
def test_delete_takes_everything(policy: ConflictPolicy) -> None:
    region = prepared("delete")
    add_bandwidth(region)
    assert region.begin("delete", "s", policy) is None
    region.carry_out()
    assert not region.view.consumers
    assert region.view.records.get(Server, "s") is None


def test_a_forced_delete_ignores_generations() -> None:
    region = prepared("delete")
    add_bandwidth(region)
    assert region.begin("delete", "s", "fail", is_forced=True) is None
    region.carry_out()
    assert not region.view.consumers


@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_a_change_while_the_order_is_under_way(policy: ConflictPolicy) -> None:
    """The conductor finds it at the step that writes: by fail it stops, by the others it goes on."""
    region = prepared("delete")
    assert region.begin("delete", "s", policy) is None
    add_bandwidth(region)
    work = region.carry_out()
    if policy == "fail":
        assert work.phase == "failed"
        assert "somebody else" in (work.reason or "")
        assert region.server("s").state == "error"
        assert region.held("s")
    else:
        assert work.phase == "done"
        assert not region.view.consumers


@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_what_is_undone_is_undone_whatever_others_have_changed(policy: ConflictPolicy) -> None:
    region = prepared("migrate")
    source = region.held("s")
    assert region.begin("migrate", "s", policy) is None
    extra = add_bandwidth(region)
    region.carry_out(Faults(["send"]))
    assert region.held("s") == source | extra
    assert region.held(region.migration("s").id) == {}


def test_a_move_of_a_server_whose_allocations_are_gone_is_refused_by_every_policy() -> None:
    for policy in ALL_POLICIES:
        region = prepared("migrate")
        region.do(c.DeleteAllocations(ConsumerId("s")))
        assert isinstance(region.begin("migrate", "s", policy), ServerChangedByOthers)
        assert not region.view.consumers


def test_create_on_an_existing_consumer_is_a_bug() -> None:
    region = Region()
    region.claim("s", (nic_id(1), ((BANDWIDTH, 1),)))
    assert region.begin("create", "s") == ServerHoldsAlready("s")


def test_a_server_that_has_no_place_is_deleted_with_whatever_it_holds() -> None:
    region = Region()
    region.run("create", "s", Faults(["build"]))
    region.claim("s", (nic_id(1), ((BANDWIDTH, 1),)))
    assert isinstance(region.begin("delete", "s"), ServerChangedByOthers)
    assert region.begin("delete", "s", is_forced=True) is None
    assert not region.view.consumers
    assert region.view.records.get(Server, "s") is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("resize", "delete"),
        ("migrate", "evacuate"),
        ("migrate", "migrate"),
        ("live_migrate", "resize"),
        ("delete", "rebuild"),
    ],
)
def test_of_two_operations_one_begins(first: str, second: str) -> None:
    region = prepared(first)
    assert region.begin(first, "s") is None
    before = region.view.state()
    refused = region.begin(second, "s")
    assert isinstance(refused, ServerBusy)
    assert region.view.state() == before


def test_of_confirm_and_revert_one_begins() -> None:
    for first, second in (("confirm", "revert"), ("revert", "confirm")):
        region = prepared(first)
        assert region.begin(first, "s") is None
        assert isinstance(region.begin(second, "s"), ServerBusy)
        region.carry_out()
        assert len(region.view.consumers) == 1
