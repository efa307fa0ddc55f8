"""Somebody else has changed what a server holds when an operation begins, or while it is under way: fail,
retry and merge, for every saga that changes allocations."""

import msgspec
import pytest

from berth.doctor.findings import examine
from berth.model import commands as c
from berth.model.ids import ConsumerId
from berth.model.rejections import ServerBusy, ServerChangedByOthers, ServerHoldsAlready
from berth.model.servers import ConflictPolicy, Server
from berth.sagas.conflicts import as_dict, held_now
from tests.unit.sagas.regions import BANDWIDTH, Faults, Region, S, host_id, nic_id, prepared

pytestmark = pytest.mark.fast

MOVES = ["resize", "migrate", "live_migrate", "evacuate"]
ALL_POLICIES: list[ConflictPolicy] = ["fail", "retry", "merge"]
Amounts = dict[str, dict[str, int]]


def host_of(region: Region) -> int:
    place = region.server(S).place
    assert place is not None
    return int(place.name.removeprefix("host-"))


def add_bandwidth(region: Region, amount: int = 100) -> Amounts:
    """Another service gives the server bandwidth, past Berth. What it has added."""
    card = nic_id(host_of(region))
    region.claim(S, *held_now(region.view, S), (card, ((BANDWIDTH, amount),)))
    return {card: {BANDWIDTH: amount}}


def bandwidth_where_it_is(region: Region, amount: int = 100) -> Amounts:
    """What was added, on the host where the server holds the rest."""
    (name,) = region.hosts_of(S)
    return {nic_id(int(name.removeprefix("host-"))): {BANDWIDTH: amount}}


@pytest.mark.parametrize("name", [*MOVES, "confirm", "revert", "delete", "shelve_offload"])
def test_fail_refuses_and_records_what_was_found(name: str) -> None:
    region = prepared(name)
    add_bandwidth(region)
    before, held = region.server(S), held_now(region.view, S)
    refused = region.begin(name, S)
    assert isinstance(refused, ServerChangedByOthers)
    assert (refused.id, refused.found, refused.is_recorded) == (S, f"added: {BANDWIDTH} 100", True)
    after = region.server(S)
    assert msgspec.structs.replace(after, conflict=None) == before
    assert after.conflict is not None
    assert after.conflict.held == held == held_now(region.view, S)


@pytest.mark.parametrize("name", MOVES)
def test_retry_moves_what_there_is(name: str) -> None:
    region = prepared(name)
    source, extra = region.held(S), add_bandwidth(region)
    assert region.begin(name, S, "retry") is None
    assert region.held(region.migration(S).id) == source | extra
    assert not region.held(S).keys() & extra.keys()
    region.carry_out(Faults(["prepare", "build"]))
    assert region.held(S) == source | extra, "what was undone is as it was"
    assert examine(region.view, region.now_s) == ()


@pytest.mark.parametrize("name", MOVES)
def test_merge_keeps_what_others_have_added(name: str) -> None:
    region = prepared(name)
    source, extra = region.held(S), add_bandwidth(region)
    assert region.begin(name, S, "merge") is None
    assert region.held(region.migration(S).id) == source | extra
    assert region.held(S).items() > bandwidth_where_it_is(region).items()
    region.carry_out()
    assert region.held(S).items() > bandwidth_where_it_is(region).items()
    assert as_dict(region.server(S).kept) == bandwidth_where_it_is(region)
    assert examine(region.view, region.now_s) == ()


@pytest.mark.parametrize("name", MOVES)
def test_merge_keeps_it_where_the_move_is_undone(name: str) -> None:
    region = prepared(name)
    source, extra = region.held(S), add_bandwidth(region)
    assert region.begin(name, S, "merge") is None
    region.carry_out(Faults(["prepare", "build"]))
    assert region.held(S) == source | extra
    assert region.held(region.migration(S).id) == {}
    assert examine(region.view, region.now_s) == ()


def test_merge_keeps_it_at_the_alternates() -> None:
    region = prepared("migrate")
    add_bandwidth(region)
    assert region.begin("migrate", S, "merge") is None
    run = region.carry_out(Faults(once=["prepare"]))
    assert run.attempt == 2
    assert region.held(S).items() > bandwidth_where_it_is(region).items()
    assert as_dict(region.server(S).kept) == bandwidth_where_it_is(region)


def test_what_was_kept_once_stays_kept_in_later_moves() -> None:
    region = prepared("migrate")
    add_bandwidth(region)
    assert region.begin("migrate", S, "merge") is None
    region.carry_out()
    region.run("confirm", S)
    region.run("migrate", S)
    assert region.held(S).items() > bandwidth_where_it_is(region).items()
    region.run("revert", S)
    assert region.held(S).items() > bandwidth_where_it_is(region).items()
    assert as_dict(region.server(S).kept) == bandwidth_where_it_is(region)
    assert region.begin("migrate", S, "retry") is None
    region.carry_out()
    region.run("confirm", S)
    assert region.held(S).keys() == {host_id(host_of(region))}
    assert region.server(S).kept == ()


@pytest.mark.parametrize("policy", ["retry", "merge"])
def test_confirm_leaves_what_others_have_added(policy: ConflictPolicy) -> None:
    region = prepared("confirm")
    extra = add_bandwidth(region)
    held = region.held(S)
    assert region.begin("confirm", S, policy) is None
    region.carry_out()
    assert region.held(S) == held
    assert extra.items() <= held.items()
    assert len(region.view.consumers) == 1
    assert examine(region.view, region.now_s) == ()


def test_revert_by_retry_gives_back_and_by_merge_keeps_too() -> None:
    for policy in ("retry", "merge"):
        region = prepared("revert")
        source = region.held(region.migration(S).id)
        add_bandwidth(region)
        assert region.begin("revert", S, policy) is None
        region.carry_out()
        extra = {} if policy == "retry" else bandwidth_where_it_is(region)
        assert region.held(S) == source | extra
        assert as_dict(region.server(S).kept) == extra
        assert len(region.view.consumers) == 1
        assert examine(region.view, region.now_s) == ()


@pytest.mark.parametrize("policy", ["retry", "merge"])
def test_delete_takes_everything(policy: ConflictPolicy) -> None:
    region = prepared("delete")
    add_bandwidth(region)
    assert region.begin("delete", S, policy) is None
    region.carry_out()
    assert not region.view.consumers
    assert region.view.records.get(Server, S) is None


def test_a_forced_delete_ignores_generations() -> None:
    region = prepared("delete")
    add_bandwidth(region)
    assert region.begin("delete", S, "fail", is_forced=True) is None
    region.carry_out()
    assert not region.view.consumers


@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_a_change_while_the_run_is_under_way(policy: ConflictPolicy) -> None:
    """The conductor finds it at the step that writes: by fail it stops, by the others it goes on."""
    region = prepared("delete")
    assert region.begin("delete", S, policy) is None
    add_bandwidth(region)
    run = region.carry_out()
    if policy == "fail":
        assert run.phase == "failed"
        assert "another client has changed" in (run.reason or "")
        assert region.server(S).state == "active"
        assert region.held(S)
        region.run("delete", S)
        assert not region.view.consumers
    else:
        assert run.phase == "done"
        assert not region.view.consumers


@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_what_is_undone_is_undone_whatever_others_have_changed(policy: ConflictPolicy) -> None:
    region = prepared("migrate")
    source = region.held(S)
    assert region.begin("migrate", S, policy) is None
    extra = add_bandwidth(region)
    region.carry_out(Faults(["send"]))
    assert region.held(S) == source | extra
    assert region.held(region.migration(S).id) == {}


@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_a_move_of_a_server_whose_allocations_are_gone_claims_its_source_again(
    policy: ConflictPolicy,
) -> None:
    region = prepared("migrate")
    source = region.held(S)
    region.do(c.DeleteAllocations(ConsumerId(S)))
    if policy == "fail":
        assert isinstance(region.begin("migrate", S, policy), ServerChangedByOthers)
        assert not region.view.consumers
    assert region.begin("migrate", S, policy) is None
    assert region.held(region.migration(S).id) == source
    region.carry_out()
    region.run("revert", S)
    assert region.held(S) == source


def test_the_same_content_written_again_is_no_conflict() -> None:
    for name in [*MOVES, "confirm", "revert", "delete", "shelve_offload"]:
        region = prepared(name)
        region.claim(S, *held_now(region.view, S))
        assert region.begin(name, S) is None, name
        assert region.carry_out().phase == "done"


def test_a_confirm_does_not_stick_when_the_same_is_written_again() -> None:
    region = prepared("confirm")
    migration = region.migration(S).id
    assert region.begin("confirm", S) is None
    region.claim(migration, *held_now(region.view, migration), type="MIGRATION")
    assert region.carry_out().phase == "done"
    assert region.held(migration) == {}
    assert region.server(S).state == "active"


@pytest.mark.parametrize("name", [*MOVES, "confirm", "revert", "delete", "shelve_offload"])
def test_fail_fails_once_and_the_repeated_request_goes_on(name: str) -> None:
    region = prepared(name)
    add_bandwidth(region)
    assert isinstance(region.begin(name, S), ServerChangedByOthers)
    assert region.begin(name, S) is None
    assert region.carry_out().phase == "done"


def test_merge_leaves_nothing_on_the_host_that_the_server_left() -> None:
    region = prepared("migrate")
    add_bandwidth(region)
    assert region.begin("migrate", S, "merge") is None
    region.carry_out()
    region.run("confirm", S)
    place = region.server(S).place
    assert place is not None
    assert region.hosts_of(S) == [place.name]
    assert region.held(S)[nic_id(host_of(region))] == {BANDWIDTH: 100}


def test_create_on_an_existing_consumer_is_a_bug() -> None:
    region = Region()
    region.claim(S, (nic_id(1), ((BANDWIDTH, 1),)))
    assert region.begin("create", S) == ServerHoldsAlready(S)


def test_a_server_that_has_no_place_is_deleted_with_whatever_it_holds() -> None:
    region = Region()
    region.run("create", S, Faults(["build"]))
    region.claim(S, (nic_id(1), ((BANDWIDTH, 1),)))
    assert isinstance(region.begin("delete", S), ServerChangedByOthers)
    assert region.begin("delete", S, is_forced=True) is None
    assert not region.view.consumers
    assert region.view.records.get(Server, S) is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("resize", "stop"),
        ("migrate", "evacuate"),
        ("migrate", "migrate"),
        ("live_migrate", "resize"),
        ("delete", "rebuild"),
    ],
)
def test_of_two_operations_one_begins(first: str, second: str) -> None:
    region = prepared(first)
    assert region.begin(first, S) is None
    before = region.view.state()
    refused = region.begin(second, S)
    assert isinstance(refused, ServerBusy)
    assert region.view.state() == before


def test_of_confirm_and_revert_one_begins() -> None:
    for first, second in (("confirm", "revert"), ("revert", "confirm")):
        region = prepared(first)
        assert region.begin(first, S) is None
        assert isinstance(region.begin(second, S), ServerBusy)
        region.carry_out()
        assert len(region.view.consumers) == 1
