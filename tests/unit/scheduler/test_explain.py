"""What an operator is told in situations that operators meet, compared with files that people have read.

Each situation is a small fleet and a request; what is said of it is in tests/golden/explanations. After a
change of words, write the files anew and read the difference before it is committed:

    UPDATE_GOLDEN=1 .venv/bin/pytest tests/unit/scheduler/test_explain.py && git diff tests/golden
"""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from berth.api.kernel.rejections import explain_rejection
from berth.model.ids import AggregateId, GroupId
from berth.model.placement import SHARES_VIA_AGGREGATE, HostStatus, Inventory
from berth.model.rejections import (
    GroupNotFound,
    GroupPolicyBroken,
    NoFit,
    Rejection,
    ResourceClassNotFound,
    TraitsNotFound,
    UnknownHost,
)
from berth.model.scheduling import (
    CandidatesRequest,
    Check,
    Explanation,
    Hints,
    Plan,
    RequestGroup,
    ScheduleRequest,
)
from berth.scheduler.explain.explanation import HOSTS_EXPLAINED_MAX, explain
from berth.scheduler.plan import plan
from tests.options import DEFAULT_FILTERS, scheduler_options
from tests.unit.scheduler.fleets import Fleet, asking, request, resources
from tests.unit.scheduler.fleets_at_random import flat_fleets, nested_fleets, sharing_fleets

pytestmark = pytest.mark.fast

GOLDEN = Path(__file__).parents[2] / "golden" / "explanations"
OPTIONS = scheduler_options()


class Situation(NamedTuple):
    fleet: Fleet
    request: ScheduleRequest
    hosts: tuple[str, ...] = ()


def explained(situation: Situation) -> Explanation:
    before = situation.fleet.view.state()
    found = explain(situation.fleet.view, situation.request, OPTIONS, explain_rejection, situation.hosts)
    assert isinstance(found, Explanation), found
    assert situation.fleet.view.state() == before, "to explain is not to change"
    return found


# -- situations ---------------------------------------------------------------------------------

SMALL = {"VCPU": 8, "MEMORY_MB": 16384}


def full() -> Situation:
    """Every host has something left, and none enough."""
    fleet = Fleet()
    for number, memory in enumerate((15872, 14848, 12800), 1):
        fleet.provider(f"host-{number}", SMALL)
        fleet.take(f"host-{number}", {"VCPU": 2, "MEMORY_MB": memory})
    return Situation(fleet, request(asking(resources(VCPU=2, MEMORY_MB=4096))), ("host-3",))


def full_in_every_way() -> Situation:
    """A flavor that is too large for the fleet in all it asks for."""
    fleet = Fleet()
    for number in range(1, 4):
        fleet.provider(f"host-{number}", SMALL)
        fleet.take(f"host-{number}", {"VCPU": number, "MEMORY_MB": 1024 * number})
    return Situation(fleet, request(asking(resources(VCPU=16, MEMORY_MB=32768))), ("host-1",))


def fragmented() -> Situation:
    """As much is free as is asked for, but on no one NUMA cell."""
    fleet = Fleet()
    for number in (1, 2):
        host = f"host-{number}"
        fleet.provider(host, {"MEMORY_MB": 32768})
        for cell in (0, 1):
            fleet.provider(f"{host}-numa{cell}", {"PCPU": 8}, parent=host)
            fleet.take(f"{host}-numa{cell}", {"PCPU": 2 + number})
    ask = asking(resources(MEMORY_MB=4096), resources("_numa", PCPU=8))
    return Situation(fleet, request(ask), ("host-1",))


def one_trait_missing() -> Situation:
    fleet = Fleet()
    fleet.provider("host-1", SMALL, traits=("HW_CPU_X86_AVX2",))
    fleet.provider("host-2", SMALL, traits=("HW_CPU_X86_AVX2", "STORAGE_DISK_SSD"))
    fleet.take("host-2", {"VCPU": 8})
    group = RequestGroup(resources=(("VCPU", 4),), required=(("HW_CPU_X86_AVX2",), ("STORAGE_DISK_SSD",)))
    return Situation(fleet, request(asking(group)), ("host-1", "host-2"))


def group_full() -> Situation:
    """One member on each host, and no more may share one."""
    fleet = Fleet()
    for number in (1, 2, 3):
        fleet.provider(f"host-{number}", SMALL)
    group = fleet.group("web", "anti-affinity", max_per_domain=1)
    for number in (1, 2, 3):
        fleet.take(f"host-{number}", {"VCPU": 1}, group)
    return Situation(fleet, request(asking(resources(VCPU=1)), group=group), ("host-1",))


def group_too_large() -> Situation:
    """Five members for three racks, of which one has a member already."""
    fleet = Fleet()
    for rack in (1, 2, 3):
        fleet.aggregate(f"rack-{rack}", "rack")
        for host in ("a", "b"):
            fleet.provider(f"host-{rack}{host}", SMALL, aggregates=(f"rack-{rack}",))
    group = fleet.group("db", "anti-affinity", "rack", max_per_domain=1)
    fleet.take("host-1a", {"VCPU": 1}, group)
    return Situation(fleet, request(asking(resources(VCPU=1)), count=5, group=group), ("host-1b", "host-2a"))


def zone_wrong() -> Situation:
    """The zone is full, and another is not."""
    fleet = Fleet()
    for zone in ("east", "west"):
        fleet.aggregate(zone, "zone")
        fleet.provider(f"{zone}-1", SMALL, aggregates=(zone,))
    fleet.take("east-1", {"VCPU": 7})
    return Situation(fleet, request(asking(resources(VCPU=4)), zone="east"), ("east-1", "west-1"))


def zone_unknown() -> Situation:
    fleet = Fleet()
    fleet.aggregate("east", "zone")
    fleet.provider("east-1", SMALL, aggregates=("east",))
    return Situation(fleet, request(asking(resources(VCPU=4)), zone="esat"), ("east-1",))


def host_disabled() -> Situation:
    fleet = Fleet()
    fleet.provider("host-1", SMALL)
    fleet.provider("host-2", SMALL)
    fleet.take("host-1", {"VCPU": 8})
    fleet.status("host-2", HostStatus(disabled=True, reason="memory is being replaced"))
    return Situation(fleet, request(asking(resources(VCPU=2))), ("host-2",))


def max_unit_too_small() -> Situation:
    """There is room for it, but not for one consumer."""
    fleet = Fleet()
    for number in (1, 2):
        fleet.provider(f"host-{number}", {"VCPU": Inventory(64, max_unit=16), "MEMORY_MB": 65536})
    return Situation(fleet, request(asking(resources(VCPU=24, MEMORY_MB=4096))), ("host-1",))


def step_size_mismatch() -> Situation:
    fleet = Fleet()
    fleet.provider("host-1", {"VCPU": 8, "DISK_GB": Inventory(1000, min_unit=10, step_size=10)})
    return Situation(fleet, request(asking(resources(VCPU=1, DISK_GB=25))), ("host-1",))


def reserved_too_high() -> Situation:
    """A host of 64 GiB of which most is kept back."""
    fleet = Fleet()
    fleet.provider("host-1", {"VCPU": 16, "MEMORY_MB": Inventory(65536, reserved=61440)})
    return Situation(fleet, request(asking(resources(VCPU=1, MEMORY_MB=8192))), ("host-1",))


def wrong_aggregate() -> Situation:
    """The aggregate of a tenant has no host with room."""
    fleet = Fleet()
    fleet.aggregate("tenant-a")
    fleet.aggregate("tenant-b")
    fleet.provider("host-1", SMALL, aggregates=("tenant-a",))
    fleet.provider("host-2", SMALL, aggregates=("tenant-b",))
    fleet.take("host-1", {"VCPU": 6})
    group = RequestGroup(resources=(("VCPU", 4),), member_of=((AggregateId("tenant-a"),),))
    return Situation(fleet, request(asking(group)), ("host-1", "host-2"))


def pci_devices_taken() -> Situation:
    """Each host has two accelerators, and all of them are in use."""
    fleet = Fleet()
    for number in (1, 2):
        host = f"host-{number}"
        fleet.provider(host, SMALL)
        for slot in (0, 1):
            device = f"{host}-0000:81:00.{slot}"
            fleet.provider(device, {"CUSTOM_PCI_10DE_20B0": 1}, parent=host)
            fleet.take(device, {"CUSTOM_PCI_10DE_20B0": 1})
    ask = asking(resources(VCPU=2, MEMORY_MB=2048), resources("_gpu", CUSTOM_PCI_10DE_20B0=1))
    return Situation(fleet, request(ask), ("host-1",))


def affinity_host_full() -> Situation:
    """The others are on a host that has no room for two more."""
    fleet = Fleet()
    fleet.provider("host-1", SMALL)
    fleet.provider("host-2", SMALL)
    group = fleet.group("cache", "affinity")
    fleet.take("host-1", {"VCPU": 3}, group)
    return Situation(fleet, request(asking(resources(VCPU=3)), count=2, group=group), ("host-1", "host-2"))


def two_things_wrong() -> Situation:
    """No single change helps: the host with the trait is in another zone."""
    fleet = Fleet()
    for zone in ("east", "west"):
        fleet.aggregate(zone, "zone")
    fleet.provider("east-1", {"VCPU": 2}, aggregates=("east",), traits=("STORAGE_DISK_HDD",))
    fleet.provider("west-1", SMALL, aggregates=("west",), traits=("STORAGE_DISK_HDD",))
    group = RequestGroup(resources=(("VCPU", 4),), forbidden=frozenset({"STORAGE_DISK_HDD"}))
    return Situation(fleet, request(asking(group), zone="east"), ("west-1",))


def it_fits() -> Situation:
    fleet = Fleet()
    fleet.provider("host-1", SMALL)
    fleet.provider("host-2", SMALL)
    fleet.take("host-1", {"VCPU": 8})
    return Situation(
        fleet, request(asking(resources(VCPU=2, MEMORY_MB=2048)), count=2), ("host-2", "nowhere")
    )


SITUATIONS: tuple[Callable[[], Situation], ...] = (
    full,
    full_in_every_way,
    fragmented,
    one_trait_missing,
    group_full,
    group_too_large,
    zone_wrong,
    zone_unknown,
    host_disabled,
    max_unit_too_small,
    step_size_mismatch,
    reserved_too_high,
    wrong_aggregate,
    pci_devices_taken,
    affinity_host_full,
    two_things_wrong,
    it_fits,
)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.__name__)
def test_the_explanation_reads_as_agreed(situation: Callable[[], Situation]) -> None:
    told = rendered(explained(situation()))
    path = GOLDEN / f"{situation.__name__}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(told)
    assert told == path.read_text()


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {situation.__name__ for situation in SITUATIONS}


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.__name__)
def test_what_fits_is_what_is_needed_or_there_is_a_change(situation: Callable[[], Situation]) -> None:
    found = explained(situation())
    assert (found.change is None) == (found.fitting >= found.needed)
    for remedy in (found.change.best, *found.change.others) if found.change else ():
        assert remedy is not None
        assert remedy.fitting >= found.needed or remedy.changes[0].kind == "fewer_members"


# -- beside the golden files --------------------------------------------------------------------


def test_a_refusal_of_the_ledger_is_explained() -> None:
    situation = group_full()
    filters = [name for name in DEFAULT_FILTERS if name != "group_policy"]
    found = explain(
        situation.fleet.view, situation.request, scheduler_options(filters), explain_rejection, ("host-1",)
    )
    assert isinstance(found, Explanation)
    assert found.fitting == 0
    assert found.steps[-1].left == 3
    assert isinstance(found.refused, GroupPolicyBroken)
    assert (
        "The ledger refuses: the anti-affinity of the group web does not let a member come to" in found.text
    )
    [host] = found.hosts
    assert host.fits is False
    assert isinstance(host.refused, GroupPolicyBroken)


def test_a_forced_host_is_explained_without_filters() -> None:
    situation = host_disabled()
    forced = msgspec.structs.replace(situation.request, hints=Hints(forced_host="host-1"))
    found = explained(situation._replace(request=forced))
    assert [step.constraint for step in found.steps] == ["forced_host", "resources:VCPU", "together"]
    assert found.change is not None
    assert found.change.best is not None
    assert [change.kind for change in found.change.best.changes] == ["without_hint", "enable_host"]
    fleet = situation.fleet
    fleet.provider("host-3", SMALL)
    found = explained(Situation(fleet, forced))
    assert found.change is not None
    assert found.change.best is not None
    assert found.change.best.text == "on another host than host-1"


def test_a_host_that_is_disabled_and_too_small_is_named_with_both() -> None:
    fleet = Fleet()
    fleet.provider("host-1", {"VCPU": 6})
    fleet.provider("host-2", {"VCPU": 4})
    fleet.status("host-1", HostStatus(disabled=True))
    fleet.status("host-2", HostStatus(disabled=True))
    found = explained(Situation(fleet, request(asking(resources(VCPU=8)))))
    assert found.change is not None
    assert found.change.text == (
        "It would fit with 2 VCPU less (6 instead of 8) and with the host host-1 enabled (it is disabled)."
    )


def test_no_small_change_helps_a_request_for_a_class_that_no_host_has() -> None:
    fleet = Fleet()
    fleet.provider("host-1", {"VCPU": 6})
    found = explained(Situation(fleet, request(asking(resources(MEMORY_MB=8)))))
    assert found.change is not None
    assert found.change.best is None
    assert found.change.text == (
        "No small change would make it fit. "
        "Most hosts are removed by resources:MEMORY_MB (8 MEMORY_MB free): 1."
    )


def test_more_is_offered_where_less_is_not_to_be_had() -> None:
    fleet = Fleet()
    fleet.provider("host-1", {"DISK_GB": Inventory(100, min_unit=10)})
    found = explained(Situation(fleet, request(asking(resources(DISK_GB=4)))))
    assert found.change is not None
    assert found.change.text == "It would fit with 6 DISK_GB more (10 instead of 4)."


def test_the_explanation_of_parts_that_compete_says_how_much_is_left_for_the_second() -> None:
    fleet = Fleet()
    fleet.provider("host-1")
    fleet.provider("numa-0", {"PCPU": 16}, parent="host-1")
    fleet.provider("numa-1", {"PCPU": 16}, parent="host-1")
    fleet.take("numa-0", {"PCPU": 3})
    ask = asking(resources("_a", PCPU=16), resources("_b", PCPU=16), isolate=True)
    found = explained(Situation(fleet, request(ask)))
    assert found.change is not None
    assert found.change.text == "It would fit with 3 PCPU less in the group _b (13 instead of 16)."


def test_what_one_part_takes_is_not_offered_to_the_next() -> None:
    fleet = Fleet()
    fleet.provider("host-1")
    fleet.provider("numa-0", {"PCPU": 16}, parent="host-1")
    ask = asking(resources("_a", PCPU=10), resources("_b", PCPU=10))
    found = explained(Situation(fleet, request(ask)))
    assert found.change is not None
    assert found.change.text == "It would fit with 4 PCPU less in the group _b (6 instead of 10)."


def test_parts_on_sharing_providers_are_planned_where_they_cannot_be_counted() -> None:
    fleet = Fleet()
    for host in range(3):
        fleet.provider(f"h{host}", {"VCPU": 1}, aggregates=("shared",))
    for pool in range(2):
        fleet.provider(f"p{pool}", {"DISK_GB": 9}, traits=(SHARES_VIA_AGGREGATE,), aggregates=("shared",))
    parts = asking(resources(VCPU=1), *(resources(f"_{part}", DISK_GB=1) for part in range(5)))
    found = explained(Situation(fleet, request(parts, 3)))
    assert (found.fitting, found.change) == (3, None)
    assert " 3 fit. " in found.text
    found = explained(Situation(fleet, request(parts, 4)))
    assert found.fitting == 3
    assert "Only 3 fit, and 4 are needed." in found.text
    assert found.change is not None
    assert found.change.best is not None
    assert found.change.best.text == "with 3 members instead of 4"
    none = asking(resources(VCPU=1), *(resources(f"_{part}", DISK_GB=4) for part in range(5)))
    assert explained(Situation(fleet, request(none))).fitting == 0


def test_the_number_of_explained_hosts_is_bounded() -> None:
    fleet = Fleet()
    names = [f"host-{number}" for number in range(HOSTS_EXPLAINED_MAX + 5)]
    for name in names:
        fleet.provider(name, SMALL)
    found = explained(Situation(fleet, request(asking(resources(VCPU=1))), tuple(names)))
    assert [host.host for host in found.hosts] == names[:HOSTS_EXPLAINED_MAX]


def test_an_empty_fleet_is_explained() -> None:
    found = explained(Situation(Fleet(), request(asking(resources(VCPU=1)))))
    assert (found.fitting, found.hosts_total) == (0, 0)
    assert found.text.startswith("Asked for 1 VCPU. It fits nowhere. There are no hosts.")


@pytest.mark.parametrize(
    ("wrong", "rejection"),
    [
        (request(asking(resources(CUSTOM_X=1))), ResourceClassNotFound("CUSTOM_X")),
        (
            request(CandidatesRequest(groups=(resources(VCPU=1),), root_required=frozenset({"CUSTOM_T"}))),
            TraitsNotFound(("CUSTOM_T",)),
        ),
        (request(asking(resources(VCPU=1)), group=GroupId("g")), GroupNotFound(GroupId("g"))),
        (
            request(asking(resources(VCPU=1)), hints=Hints(forced_host="x")),
            UnknownHost("forced_host", "x"),
        ),
    ],
)
def test_unknown_names_are_refused(wrong: ScheduleRequest, rejection: Rejection) -> None:
    assert explain(Fleet().view, wrong, OPTIONS, explain_rejection) == rejection


# -- at random ----------------------------------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(st.one_of(flat_fleets(), nested_fleets(), sharing_fleets()))
def test_a_member_fits_if_and_only_if_there_is_a_plan_for_it(drawn: tuple[Fleet, ScheduleRequest]) -> None:
    fleet, wanted = drawn
    planned = plan(fleet.view, wanted, OPTIONS, random.Random(1), 0)
    found = explained(Situation(fleet, wanted, tuple(fleet.view.names)))
    fits_somewhere = any(host.fits for host in found.hosts)
    assert fits_somewhere == isinstance(planned, Plan)
    assert (found.fitting > 0) == isinstance(planned, Plan)


@settings(deadline=None, max_examples=200)
@given(flat_fleets(), st.integers(1, 9))
def test_the_nearest_amount_is_offered(drawn: tuple[Fleet, ScheduleRequest], asked: int) -> None:
    """Of a request for one class, without a group: what the best host could give, and no less."""
    fleet, _ = drawn
    found = explained(Situation(fleet, request(asking(resources(VCPU=asked)))))
    if found.fitting:
        return
    possible = [
        amount
        for amount in range(1, 10)
        if explained(Situation(fleet, request(asking(resources(VCPU=amount))))).fitting
    ]
    nearest = min(possible, key=lambda amount: (abs(amount - asked), amount), default=None)
    assert found.change is not None
    remedies = (found.change.best, *found.change.others)
    changes = [remedy.changes[0] for remedy in remedies if remedy is not None and len(remedy.changes) == 1]
    offered = [change.after for change in changes if change.kind in ("less", "more")]
    assert offered == ([] if nearest is None else [nearest])


# -- as text ------------------------------------------------------------------------------------


def test_a_pool_is_not_a_host() -> None:
    fleet = Fleet()
    for number in range(3):
        fleet.provider(f"h{number}", {"VCPU": 4}, aggregates=("shared",))
    fleet.provider("pool", {"DISK_GB": 10}, traits=(SHARES_VIA_AGGREGATE,), aggregates=("shared",))

    def hosts_total(**amounts: int) -> int:
        group = RequestGroup(resources=tuple(amounts.items()))
        found = explain(fleet.view, request(asking(group)), scheduler_options(), explain_rejection)
        assert isinstance(found, Explanation)
        return found.hosts_total

    assert hosts_total(VCPU=8, DISK_GB=1) == 3
    assert hosts_total(DISK_GB=11) == 3
    # What a pool could be all by itself is not placed there either: nothing runs on a pool.
    assert hosts_total(DISK_GB=10) == 3
    asked = request(asking(RequestGroup(resources=(("DISK_GB", 10),))))
    assert isinstance(plan(fleet.view, asked, OPTIONS, random.Random(1), 0), NoFit)


def rendered(explanation: Explanation) -> str:
    lines = [*explanation.text.replace(". ", ".\n").split("\n"), ""]
    lines.append(
        f"needed {explanation.needed}, fitting {explanation.fitting}, hosts {explanation.hosts_total}"
    )
    for step in explanation.steps:
        lines.append(f"  {step.constraint}: {step.asked}: removes {step.removed}, leaves {step.left}")
    if explanation.change is not None:
        lines += ["", "what would help"]
        for remedy in filter(None, (explanation.change.best, *explanation.change.others)):
            lines.append(f"  {remedy.text}: {remedy.fitting} would fit, hosts with room: {remedy.hosts}")
    for host in explanation.hosts:
        lines += ["", f"{host.host}: {'fits' if host.fits else 'does not fit'}"]
        lines += [_rendered_check(check) for check in host.checks]
        if host.refused is not None:
            lines.append(f"  refused: {explain_rejection(host.refused)}")
    return "\n".join(lines) + "\n"


def _rendered_check(check: Check) -> str:
    numbers = "" if check.free is None else f" [free {check.free}, limit {check.limit}]"
    return f"  {'ok' if check.ok else 'NO'} {check.constraint}: {check.asked} / {check.found}{numbers}"
