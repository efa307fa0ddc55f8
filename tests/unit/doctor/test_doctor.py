"""The doctor: every kind of finding, seen and repaired, and what is not his to judge."""

import msgspec
import pytest

from berth.doctor.findings import CHECKS, GRACE_S, RUN_S, Finding, Moment, examine, find_again
from berth.doctor.repairs import repair
from berth.ledger import decide
from berth.model import commands as c
from berth.model.events import RecordChanged
from berth.model.ids import ConsumerId, GroupId
from berth.model.placement import Wanted
from berth.model.rejections import CapacityExceeded, FindingGone, Rejection, RepairUnsafe
from berth.model.saga_runs import Outbox
from berth.model.servers import Action, Host
from berth.sagas.conflicts import as_dict, held_now
from tests.unit.sagas.regions import BANDWIDTH, Faults, Region, S, host_id, nic_id, prepared

pytestmark = pytest.mark.fast


def vcpus(number: int, count: int = 2) -> Wanted:
    return (host_id(number), (("VCPU", count),))


def found(region: Region) -> list[str]:
    return [finding.id for finding in examine(region.view, region.now_s)]


def only(region: Region) -> Finding:
    (finding,) = examine(region.view, region.now_s)
    return finding


def try_repair(region: Region, id: str, grace_s: int = GRACE_S) -> Rejection | None:
    return region.tries(lambda view, now_s: repair(view, id, Moment(now_s, grace_s)))


def is_repaired(region: Region, kind: str) -> None:
    """There is one finding, of this kind, and after its repair there is none."""
    finding = only(region)
    assert finding.kind == kind
    assert finding.repair
    assert try_repair(region, finding.id) is None
    assert found(region) == []
    assert try_repair(region, finding.id) == FindingGone(finding.id)


@pytest.fixture
def region() -> Region:
    return prepared("migrate")


def number_of(region: Region, id: str = S) -> int:
    place = region.server(id).place
    assert place is not None
    return int(place.name.removeprefix("host-"))


def another(region: Region) -> int:
    return number_of(region) % 5 + 1


# -- consumers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("type", ["INSTANCE", "MIGRATION"])
def test_a_consumer_that_no_record_knows(region: Region, type: str) -> None:
    region.claim("ghost", vcpus(1), type=type)
    young = only(region)
    assert (young.id, young.repair) == ("orphan_consumer:ghost", None)
    assert try_repair(region, young.id) == RepairUnsafe(young.id, young.unsafe or "")
    assert region.held("ghost"), "its record may follow"
    region.now_s += GRACE_S
    is_repaired(region, "orphan_consumer")
    assert region.held("ghost") == {}
    assert region.held(S)


def test_the_grace_is_the_callers_to_say(region: Region) -> None:
    region.claim("ghost", vcpus(1))
    assert try_repair(region, "orphan_consumer:ghost", grace_s=0) is None
    assert found(region) == []


def test_consumers_of_others_are_not_judged(region: Region) -> None:
    region.claim("port", (nic_id(1), ((BANDWIDTH, 1),)), type="PORT")
    region.claim("old", vcpus(1), type=None)
    assert found(region) == []


def test_consumers_on_hosts_of_others_are_not_judged() -> None:
    """A Nova that uses this Placement has hosts without our agents."""
    region = Region()
    for host in list(region.view.records.all(Host)):
        region.do(c.Enact((RecordChanged(host, None),)))
    region.claim("novas", vcpus(1))
    region.now_s += RUN_S
    assert found(region) == []


def test_an_orphan_is_let_go_from_its_group() -> None:
    region = Region()
    region.group("g", "anti-affinity")
    region.run("create", S, group="g")
    claim = c.Claim(ConsumerId("ghost"), (vcpus(another(region)),), "p", "u", None, "INSTANCE", GroupId("g"))
    region.do(c.ReplaceAllocations((claim,)))
    region.now_s += GRACE_S
    is_repaired(region, "orphan_consumer")
    assert list(region.view.groups.memberships) == [S]


# -- servers ------------------------------------------------------------------------------------


def test_a_server_without_its_allocations(region: Region) -> None:
    before = region.held(S)
    region.do(c.DeleteAllocations(ConsumerId(S)))
    assert as_dict(only(region).should_hold) == before
    is_repaired(region, "server_without_allocations")
    assert region.held(S) == before
    region.run("migrate", S)


def test_there_must_be_room_for_what_is_claimed_again() -> None:
    region = Region(hosts=1, vcpus=2)
    region.run("create", S)
    region.do(c.DeleteAllocations(ConsumerId(S)))
    region.claim("other", vcpus(1), type="OTHER")
    assert isinstance(try_repair(region, f"server_without_allocations:{S}"), CapacityExceeded)
    assert region.held(S) == {}
    assert found(region) == [f"server_without_allocations:{S}"]


def test_a_server_with_wrong_allocations(region: Region) -> None:
    before = region.held(S)
    region.claim(S, vcpus(number_of(region), 3))
    finding = only(region)
    assert as_dict(finding.holds) == {host_id(number_of(region)): {"VCPU": 3}}
    is_repaired(region, "server_with_wrong_allocations")
    assert region.held(S) == before
    region.run("migrate", S)


def test_a_server_that_should_hold_nothing() -> None:
    region = prepared("unshelve")
    region.claim(S, vcpus(1))
    is_repaired(region, "server_with_wrong_allocations")
    assert region.held(S) == {}
    region.run("unshelve", S)


def test_doubled_allocations_of_the_old_style(region: Region) -> None:
    before = region.held(S)
    region.claim(S, *region.server(S).held, vcpus(another(region)))
    assert len(region.hosts_of(S)) == 2
    assert f"host-{another(region)}" in only(region).sentence
    is_repaired(region, "doubled_allocations")
    assert region.held(S) == before
    region.run("migrate", S)


def test_the_same_written_again_is_nothing_to_repair(region: Region) -> None:
    region.claim(S, *region.server(S).held)
    assert found(region) == []
    region.run("migrate", S)


def test_a_server_that_holds_something_on_a_host_where_it_is_not(region: Region) -> None:
    """What merge left on the source before it took that along: the record says so too."""
    before = region.held(S)
    region.claim(S, *region.server(S).held, vcpus(another(region)))
    held = held_now(region.view, S)
    server = msgspec.structs.replace(region.server(S), held=held, kept=(vcpus(another(region)),))
    region.put_record(msgspec.structs.replace(server, generation=2))
    assert f"holds resources on host-{another(region)}, but is not there" in only(region).sentence
    is_repaired(region, "server_elsewhere")
    assert region.held(S) == before
    assert region.server(S).kept == ()
    region.run("migrate", S)


def test_a_server_to_which_something_is_being_done_is_not_judged(region: Region) -> None:
    assert region.begin("migrate", S) is None
    region.claim(S, vcpus(1, 1))
    assert found(region) == []


# -- migrations ---------------------------------------------------------------------------------


def test_a_migration_that_nobody_finishes() -> None:
    region = prepared("confirm")
    migration = region.migration(S)
    server = msgspec.structs.replace(region.server(S), state="active", migration=None)
    region.put_record(server)
    assert "no saga run will finish it" in only(region).sentence
    is_repaired(region, "unfinished_migration")
    assert region.held(migration.id) == {}
    assert (region.migration(S).status, region.migration(S).held) == ("error", ())
    region.run("migrate", S)


def test_a_migration_that_waits_is_left_alone() -> None:
    region = prepared("confirm")
    region.now_s += 30 * RUN_S
    assert found(region) == []


def test_a_migration_without_its_allocations() -> None:
    region = prepared("revert")
    migration = region.migration(S)
    region.do(c.DeleteAllocations(ConsumerId(migration.id)))
    is_repaired(region, "migration_without_allocations")
    assert region.held(migration.id) == as_dict(migration.held)
    region.run("revert", S)
    assert found(region) == []


def test_a_migration_with_wrong_allocations() -> None:
    region = prepared("revert")
    migration = region.migration(S)
    region.claim(migration.id, vcpus(another(region), 1), type="MIGRATION")
    is_repaired(region, "migration_with_wrong_allocations")
    assert region.held(migration.id) == as_dict(migration.held)


def test_a_migration_that_somebody_has_written_again() -> None:
    region = prepared("revert")
    migration = region.migration(S)
    region.claim(migration.id, *migration.held, type="MIGRATION")
    assert found(region) == []
    region.run("revert", S)


def test_an_evacuation_that_waits_for_its_source_is_left_alone() -> None:
    region = prepared("evacuate")
    region.run("evacuate", S)
    region.now_s += 30 * RUN_S
    assert found(region) == []
    region.do(c.DeleteAllocations(ConsumerId(region.migration(S).id)))
    assert found(region) == [], "there is less to release"


def test_a_server_in_error_with_its_migration_is_left_alone() -> None:
    region = prepared("revert")
    region.run("revert", S, Faults(["destroy"]))
    assert region.server(S).state == "error"
    assert region.held(region.migration(S).id)
    assert found(region) == []


# -- runs and groups ----------------------------------------------------------------------------


def test_a_run_that_has_not_reached_its_cell(region: Region) -> None:
    assert region.begin("migrate", S) is None
    region.now_s += RUN_S - 1
    assert found(region) == []
    region.now_s += 1
    finding = only(region)
    assert (finding.kind, finding.repair) == ("order_without_end", None)
    assert "has not reached the cell 'cell1'" in finding.sentence
    assert isinstance(try_repair(region, finding.id), RepairUnsafe)


def test_a_run_that_does_not_end(region: Region) -> None:
    assert region.begin("migrate", S) is None
    (outbox,) = region.view.records.all(Outbox)
    region.do(c.Enact((RecordChanged(outbox, None),)))
    (action,) = [one for one in region.view.records.all(Action) if one.id == outbox.id]
    region.now_s += RUN_S
    assert "has not ended" in only(region).sentence
    region.put_record(msgspec.structs.replace(action, updated_at_s=region.now_s))
    assert found(region) == [], "it goes on"


def test_a_stray_member_of_a_group_of_servers() -> None:
    region = Region()
    region.group("g", "anti-affinity")
    region.do(c.ChangeMembers(GroupId("g"), (ConsumerId("stray"),)))
    assert found(region) == [], "one may be declared before there is anything to it"
    assert try_repair(region, "stray_member:stray") == FindingGone("stray_member:stray")
    region.run("create", S, group="g")
    is_repaired(region, "stray_member")
    assert list(region.view.groups.memberships) == [S]


def test_members_that_are_servers_or_their_migrations_are_no_strays() -> None:
    region = Region()
    region.group("g", "anti-affinity")
    region.run("create", S, group="g")
    region.run("resize", S)
    assert len(region.view.groups.memberships) == 2
    assert found(region) == []


# -- the doctor himself -------------------------------------------------------------------------


def test_a_finding_is_looked_at_again(region: Region) -> None:
    region.do(c.DeleteAllocations(ConsumerId(S)))
    (finding,) = examine(region.view, region.now_s)
    assert find_again(region.view, finding.id, Moment(region.now_s)) == finding
    region.claim(S, *region.server(S).held)
    assert find_again(region.view, finding.id, Moment(region.now_s)) is None, "it is of another kind now"
    for id in ("", "orphan_consumer", f"nonsense:{S}", f"unfinished_migration:{S}", "stray_member:none"):
        assert find_again(region.view, id, Moment(region.now_s)) is None


def test_two_repairs_of_one_finding_do_it_once(region: Region) -> None:
    region.do(c.DeleteAllocations(ConsumerId(S)))
    (finding,) = examine(region.view, region.now_s)
    command = repair(region.view, finding.id, Moment(region.now_s))
    assert not isinstance(command, Rejection)
    region.do(command)
    before = region.view.state()
    assert isinstance(decide(region.view, command, region.now_s), Rejection)
    assert region.view.state() == before


def test_every_kind_has_one_check() -> None:
    kinds = [kind for check in CHECKS for kind in check.kinds]
    assert len(set(kinds)) == len(kinds) == 15


@pytest.mark.parametrize("made_by", ["", "schedule"])
def test_what_was_scheduled_is_no_orphan(region: Region, made_by: str) -> None:
    """Its caller keeps it, also if it says that it is an instance."""
    claim = c.Claim(ConsumerId("x"), (vcpus(1),), "p", "u", None, "INSTANCE", made_by=made_by)
    assert region.tries(lambda view, now_s: c.ReplaceAllocations((claim,))) is None
    region.now_s += GRACE_S
    assert found(region) == ([] if made_by else ["orphan_consumer:x"])
    # Who writes it later does not make it somebody else's.
    again = msgspec.structs.replace(claim, wanted=(vcpus(1, 1),), generation=1, made_by="")
    assert region.tries(lambda view, now_s: c.ReplaceAllocations((again,))) is None
    region.now_s += GRACE_S
    assert found(region) == ([] if made_by else ["orphan_consumer:x"])


def test_a_host_that_placement_has_lost_is_found() -> None:
    region = Region()
    region.do(c.SetAggregates(host_id(1), None, ()))
    region.do(c.DeleteProvider(nic_id(2)))
    region.do(c.DeleteProvider(host_id(2)))
    outside, gone = examine(region.view, region.now_s)
    assert [outside.id, gone.id] == [f"host_complaint:{host_id(number)}" for number in (1, 2)]
    assert "nothing can be placed on host host-1" in outside.sentence
    assert "not in the cell's aggregate" in outside.sentence
    assert "its provider is gone" in gone.sentence
    assert isinstance(try_repair(region, gone.id), RepairUnsafe)


def test_a_look_is_charged_by_what_is_looked_at(region: Region) -> None:
    subjects = sum(len(list(check.subjects(region.view))) for check in CHECKS)
    before = region.view.steps.left
    examine(region.view, region.now_s)
    assert before - region.view.steps.left >= subjects > 0
