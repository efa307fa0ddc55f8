"""Each filter: whom it lets pass, when it has no say, and what it says of a host."""

import re
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest

from berth.model.events import RecordChanged
from berth.model.ids import AggregateId, ConsumerId, GroupId
from berth.model.placement import HostStatus
from berth.model.scheduling import Hints, RequestGroup, ScheduleRequest
from berth.model.servers import Host
from berth.scheduler.plugins import UnknownPlugin, filters
from tests.options import DEFAULT_FILTERS
from tests.servers import ROOT
from tests.unit.scheduler.fleets import Fleet, asking, request, resources

pytestmark = pytest.mark.fast

ONE = asking(resources(VCPU=1))
PLAIN = request(ONE)


def passing(fleet: Fleet, name: str, wanted: ScheduleRequest) -> set[str] | None:
    """The hosts that pass; None if the filter has no say."""
    (filter,) = filters([name])
    if filter.describe_request(fleet.view, wanted) is None:
        return None
    mask = filter.passing_hosts(fleet.view, wanted)
    assert len(mask) == fleet.view.row_end
    roots = [record for record in fleet.view.providers.values() if record.parent is None]
    return {host.name for host in roots if mask[host.row]}


def found(fleet: Fleet, name: str, wanted: ScheduleRequest, host: str) -> str:
    (filter,) = filters([name])
    return filter.describe_host(fleet.view, wanted, fleet.view.names[host])


def three() -> Fleet:
    fleet = Fleet()
    for name in ("a", "b", "c"):
        fleet.provider(name, {"VCPU": 8})
    return fleet


def test_a_plain_request_concerns_two_filters_only() -> None:
    fleet = three()
    assert [name for name in DEFAULT_FILTERS if passing(fleet, name, PLAIN) is not None] == [
        "enabled",
        "host_state",
    ]


def test_an_unknown_filter_is_refused_with_the_list_of_filters() -> None:
    with pytest.raises(UnknownPlugin, match=r"no filter called zones; there are aggregate_metadata, .*zone"):
        filters(["zones"])


def test_enabled_passes_hosts_that_are_not_disabled() -> None:
    fleet = three()
    fleet.provider("d", {"VCPU": 8}, traits=("COMPUTE_STATUS_DISABLED",))
    fleet.status("b", HostStatus(disabled=True, reason="maintenance"))
    assert passing(fleet, "enabled", PLAIN) == {"a", "c"}
    assert found(fleet, "enabled", PLAIN, "a") == "enabled"
    assert found(fleet, "enabled", PLAIN, "b") == "disabled: maintenance"
    assert found(fleet, "enabled", PLAIN, "d") == "it has the trait COMPUTE_STATUS_DISABLED"


def test_host_state_passes_hosts_that_are_up() -> None:
    fleet = three()
    fleet.status("b", HostStatus(down=True))
    assert passing(fleet, "host_state", PLAIN) == {"a", "c"}
    assert [found(fleet, "host_state", PLAIN, host) for host in "ab"] == ["up", "down"]


def test_zone_passes_hosts_of_the_zone() -> None:
    fleet = Fleet()
    fleet.aggregate("east", "zone")
    fleet.aggregate("west", "rack")
    fleet.provider("a", aggregates=("east",))
    fleet.provider("b", aggregates=("west",))
    wanted = request(ONE, zone="east")
    assert passing(fleet, "zone", wanted) == {"a"}
    assert passing(fleet, "zone", request(ONE, zone="west")) == set()
    assert [found(fleet, "zone", wanted, host) for host in "ab"] == ["in the zone east", "in no zone"]


def test_aggregate_metadata_passes_hosts_that_match() -> None:
    fleet = Fleet()
    fleet.aggregate("one", None, ssd="true", gpu="a100, h100")
    fleet.aggregate("two", None, ssd="false")
    fleet.aggregate("three", None, gpu="h100")
    fleet.provider("a", aggregates=("one",))
    fleet.provider("b", aggregates=("two", "three"))
    fleet.provider("c")
    assert passing(fleet, "aggregate_metadata", request(ONE, metadata=(("gpu", "h100"),))) == {"a", "b"}
    both = request(ONE, metadata=(("gpu", "h100"), ("ssd", "false")))
    assert passing(fleet, "aggregate_metadata", both) == {"b"}
    assert found(fleet, "aggregate_metadata", both, "a") == "its aggregates say gpu=a100|h100, ssd=true"
    assert found(fleet, "aggregate_metadata", both, "c") == "its aggregates say no gpu, no ssd"


@pytest.mark.parametrize(
    ("wanted", "hosts"),
    [
        ("5", {"five"}),
        ("= 4", {"five", "ten"}),
        (">= 5", {"five", "ten"}),
        ("<= 5", {"five"}),
        ("== 5.0", {"five"}),
        ("!= 5", {"ten"}),
        ("s== 5", {"five"}),
        ("s!= 5", {"ten", "text"}),
        ("s> 4", {"five", "text"}),
        ("s>= 5", {"five", "text"}),
        ("s< 5", {"ten"}),
        ("s<= 10", {"ten"}),
        ("<in> gp", {"text"}),
        ("<all-in> fast gpu", {"text"}),
        ("<all-in> fast fpga", set()),
        ("<or> 5 <or> 10", {"five", "ten"}),
        ("<or> 5", {"five"}),
        (">= x", set()),
        (">=5", set()),
    ],
)
def test_aggregate_metadata_is_compared(wanted: str, hosts: set[str]) -> None:
    fleet = Fleet()
    for name, value in (("five", "5"), ("ten", "10"), ("text", "fast-gpu")):
        fleet.aggregate(f"of-{name}", None, rank=value)
        fleet.provider(name, aggregates=(f"of-{name}",))
    fleet.provider("silent")
    assert passing(fleet, "aggregate_metadata", request(ONE, metadata=(("rank", wanted),))) == hosts


def test_project_isolation_keeps_others_out() -> None:
    fleet = Fleet()
    fleet.aggregate("one", None, filter_tenant_id="p, q")
    fleet.aggregate("two", None, filter_tenant_id_2="r")
    fleet.aggregate("three", None, other="p")
    fleet.provider("a", aggregates=("one",))
    fleet.provider("b", aggregates=("two", "three"))
    fleet.provider("c", aggregates=("one", "two"))
    fleet.provider("d", aggregates=("three",))
    fleet.provider("e")
    for project, hosts in (("p", "acde"), ("r", "bcde"), ("x", "de")):
        assert passing(fleet, "project_isolation", of_project(project)) == set(hosts)
    assert found(fleet, "project_isolation", of_project("x"), "c") == "it is for p and q and r alone"
    assert found(fleet, "project_isolation", of_project("x"), "e") == "it is for all projects"
    for name in ("one", "two"):
        fleet.aggregate(name)
    assert passing(fleet, "project_isolation", of_project("x")) is None


def of_project(project: str) -> ScheduleRequest:
    return ScheduleRequest(ask=ONE, members=(ConsumerId("x"),), at_least=1, project=project, user="u")


def test_trait_isolation_keeps_others_out() -> None:
    fleet = Fleet()
    fleet.aggregate("one", None, **{"trait:HW_CPU_X86_AVX": "required"})
    fleet.aggregate("two", None, **{"trait:STORAGE_DISK_SSD": "required", "trait:HW_CPU_X86_AVX": "no"})
    fleet.provider("a", aggregates=("one",))
    fleet.provider("b", aggregates=("one", "two"))
    fleet.provider("c")

    def requiring(*traits: str) -> ScheduleRequest:
        group = RequestGroup(resources=(("VCPU", 1),), required=tuple((trait,) for trait in traits))
        return request(asking(group))

    both = requiring("HW_CPU_X86_AVX", "STORAGE_DISK_SSD")
    assert passing(fleet, "trait_isolation", PLAIN) == {"c"}
    assert passing(fleet, "trait_isolation", requiring("HW_CPU_X86_AVX")) == {"a", "c"}
    assert passing(fleet, "trait_isolation", both) == {"a", "b", "c"}
    assert found(fleet, "trait_isolation", PLAIN, "b") == "it is kept for HW_CPU_X86_AVX and STORAGE_DISK_SSD"
    assert found(fleet, "trait_isolation", PLAIN, "c") == "it is kept for no trait"


def test_architecture_passes_hosts_that_match() -> None:
    fleet = Fleet()
    fleet.provider("a", traits=("HW_ARCH_X86_64",))
    fleet.provider("b", traits=("HW_ARCH_AARCH64", "HW_CPU_X86_AVX"))
    fleet.provider("c")
    wanted = request(ONE, image=(("hw_architecture", "aarch64"),))
    assert passing(fleet, "architecture", wanted) == {"b"}
    assert [found(fleet, "architecture", wanted, host) for host in "abc"] == [
        "it is x86_64",
        "it is aarch64",
        "it does not say its architecture",
    ]


def test_hypervisor_type_passes_hosts_that_match() -> None:
    fleet = three()
    for number, (name, driver) in enumerate((("a", "sim"), ("b", "other"))):
        host = Host(id=fleet.id_of(name), number=number, name=name, cell="c", driver=driver)
        fleet.view.apply(RecordChanged(None, host))
    fake = request(ONE, image=(("img_hv_type", "fake"),))
    assert passing(fleet, "hypervisor_type", fake) == {"a"}
    assert passing(fleet, "hypervisor_type", request(ONE, image=(("img_hv_type", "kvm"),))) == set()
    assert [found(fleet, "hypervisor_type", fake, host) for host in "abc"] == [
        "its driver sim runs fake",
        "its driver other runs none of these",
        "it has no agent, and does not say its hypervisor",
    ]


def test_image_isolation_keeps_others_out() -> None:
    fleet = Fleet()
    fleet.aggregate("one", None, os_type="windows", architecture="x86_64")
    fleet.aggregate("two", None, os_type="Linux")
    fleet.provider("a", aggregates=("one",))
    fleet.provider("b", aggregates=("two",))
    fleet.provider("c", aggregates=("one", "two"))
    fleet.provider("d")
    linux = request(ONE, image=(("hw_disk_bus", "ide"), ("os_type", "linux")))
    assert passing(fleet, "image_isolation", linux) == {"b", "c", "d"}
    arm = request(ONE, image=(("hw_architecture", "aarch64"),))
    assert passing(fleet, "image_isolation", arm) == {"b", "d"}
    assert passing(fleet, "image_isolation", request(ONE, image=(("hw_disk_bus", "ide"),))) is None
    assert found(fleet, "image_isolation", linux, "c") == "its aggregates allow os_type=Linux|windows"
    assert found(fleet, "image_isolation", linux, "d") == "its aggregates allow any os_type"


def test_ignored_hosts_do_not_pass() -> None:
    fleet = three()
    wanted = request(ONE, hints=Hints(ignore_hosts=frozenset({"a", fleet.id_of("b")})))
    assert passing(fleet, "ignored", wanted) == {"c"}
    (filter,) = filters(["ignored"])
    assert filter.describe_request(fleet.view, wanted) == "not a or b"


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (("rack1-*",), {"rack1-1", "rack1-2"}),
        (("rack?-1",), {"rack1-1", "rack2-1"}),
        (("rack2-1",), {"rack2-1"}),
        (("rack2-1", "rack1-1"), {"rack2-1", "rack1-1"}),
        (("rack",), set()),
        (("*",), {"rack1-1", "rack1-2", "rack2-1", "rack[1]-1"}),
        (("rack[12]-*",), set()),
        (("rack[1]-*",), {"rack[1]-1"}),
        (("rack[1]-1",), {"rack[1]-1"}),
        (("*]-?", "rack[!2]-?"), {"rack[1]-1"}),
    ],
)
def test_only_hosts_that_are_named_pass(patterns: tuple[str, ...], names: set[str]) -> None:
    fleet = Fleet()
    for name in ("rack1-1", "rack1-2", "rack2-1", "rack[1]-1"):
        fleet.provider(name)
    assert passing(fleet, "host_names", request(ONE, hints=Hints(host_names=patterns))) == names


def test_same_host_is_that_of_any_and_different_host_that_of_none() -> None:
    fleet = three()
    first, second = fleet.take("a", {"VCPU": 1}), fleet.take("b", {"VCPU": 1})
    same = request(ONE, hints=Hints(same_host=(first, second)))
    different = request(ONE, hints=Hints(different_host=(first, second)))
    assert passing(fleet, "same_host", same) == {"a", "b"}
    assert passing(fleet, "different_host", different) == {"c"}
    assert found(fleet, "same_host", same, "c") == "they are on a and b"
    assert found(fleet, "different_host", different, "a") == f"{first} is there"


def test_a_group_policy_is_kept_by_host() -> None:
    fleet = three()
    apart = fleet.group("apart", "anti-affinity", max_per_domain=1)
    together = fleet.group("together", "affinity")
    soft = fleet.group("soft", "soft-affinity")
    assert passing(fleet, "group_policy", request(ONE, group=apart)) == {"a", "b", "c"}
    assert passing(fleet, "group_policy", request(ONE, group=together)) == {"a", "b", "c"}
    fleet.take("a", {"VCPU": 1}, apart)
    fleet.take("b", {"VCPU": 1}, together)
    fleet.take("b", {"VCPU": 1}, soft)
    assert passing(fleet, "group_policy", request(ONE, group=apart)) == {"b", "c"}
    assert passing(fleet, "group_policy", request(ONE, group=together)) == {"b"}
    assert passing(fleet, "group_policy", request(ONE, group=soft)) is None
    assert found(fleet, "group_policy", request(ONE, group=apart), "a") == "the host a has 1 member"


def test_a_group_policy_is_kept_by_kind_of_domain() -> None:
    fleet = Fleet()
    for zone in ("east", "west", "north"):
        fleet.aggregate(zone, "zone")
        for number in range(2):
            fleet.provider(f"{zone}-{number}", {"VCPU": 8}, aggregates=(zone,))
    fleet.provider("stray", {"VCPU": 8})
    even = fleet.group("even", "anti-affinity", "zone", max_skew=1)
    one = fleet.group("one", "anti-affinity", "zone", max_per_domain=1)
    near = fleet.group("near", "affinity", "zone")
    for group in (even, one, near):
        fleet.take("east-0", {"VCPU": 1}, group)
    elsewhere = {"west-0", "west-1", "north-0", "north-1"}
    assert passing(fleet, "group_policy", request(ONE, group=even)) == elsewhere
    assert passing(fleet, "group_policy", request(ONE, group=one)) == elsewhere
    assert passing(fleet, "group_policy", request(ONE, group=near)) == {"east-0", "east-1"}
    assert found(fleet, "group_policy", request(ONE, group=near), "stray") == "it is in no zone"
    assert (
        found(fleet, "group_policy", request(ONE, group=near), "west-0")
        == "the zone west has 0 members, others are on east-0"
    )


def test_group_policy_by_many_small_domains() -> None:
    """Hosts in racks of two, each host but the first also in the rack before its own."""
    fleet = Fleet()
    for number in range(100):
        fleet.aggregate(f"r{number}", "rack")
    for number in range(200):
        own = number // 2
        racks = {f"r{own}", f"r{max(0, own - 1)}"} if number % 2 else {f"r{own}"}
        fleet.provider(f"h{number}", {"VCPU": 8}, aggregates=tuple(sorted(racks)))
    assert fleet.view.rows_in_aggregate(AggregateId("r5")).is_sparse(fleet.view.row_end)
    fleet.aggregate("empty", "rack")
    fleet.provider("stray", {"VCPU": 8})
    even = fleet.group("even", "anti-affinity", "rack", max_skew=1)
    one = fleet.group("one", "anti-affinity", "rack", max_per_domain=1)
    for group in (even, one):
        fleet.take("h10", {"VCPU": 1}, group)
        fleet.take("h12", {"VCPU": 1}, group)
    everywhere = {f"h{number}" for number in range(200)}
    # Those of r5 and r6, and the host of r7 that is in r6 too.
    expected = everywhere - {"h10", "h11", "h12", "h13", "h15"}
    assert passing(fleet, "group_policy", request(ONE, group=even)) == expected
    assert passing(fleet, "group_policy", request(ONE, group=one)) == expected


def test_group_policy_of_one_that_is_declared_and_names_no_group() -> None:
    fleet = three()
    apart = fleet.group("apart", "anti-affinity", max_per_domain=1)
    member = fleet.take("a", {"VCPU": 1}, apart)
    fleet.take("b", {"VCPU": 1}, apart)
    wanted = ScheduleRequest(ask=ONE, members=(member,), at_least=1, project="p", user="u")
    assert passing(fleet, "group_policy", wanted) == {"a", "c"}
    nobody = ScheduleRequest(ask=ONE, members=(ConsumerId("x"),), at_least=1, project="p", user="u")
    assert passing(fleet, "group_policy", nobody) is None
    assert passing(fleet, "group_policy", request(ONE, group=GroupId("unknown"))) is None


def test_what_the_guide_shows_works() -> None:
    guide = (ROOT / "docs" / "guides" / "add-a-filter-or-weigher.md").read_text()
    filter_code, weigher_code = re.findall(r"^ *```python\n(.*?)^ *```", guide, re.DOTALL | re.MULTILINE)
    fleet = three()
    fleet.take("b", {"VCPU": 1})
    filter, weigher = module(filter_code), module(weigher_code)
    wanted = request(ONE, metadata=(("order", "yes"),))
    assert filter.describe_request(fleet.view, PLAIN) is None
    assert filter.describe_request(fleet.view, wanted) == "an even number of consumers"
    assert filter.passing_hosts(fleet.view, wanted).tolist() == [True, False, True]
    assert filter.describe_host(fleet.view, wanted, fleet.view.names["b"]) == "it has 1"
    assert weigher.weigh(fleet.view, wanted, np.arange(3)).tolist() == [1, 2, 1]


def module(text: str) -> SimpleNamespace:
    names: dict[str, object] = {}
    exec(textwrap.dedent(text), names)
    return SimpleNamespace(**names)
