"""The units that a host reports: what cannot be is refused with words; simulated hosts make theirs up."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth.agent.fleet import FleetError, provider_id, read_fleet, register, simulated_fleet
from berth.cell.protocol import PROVIDERS_MAX, UNITS_MAX, Register

pytestmark = pytest.mark.fast

ROOT, CELL, PF = (provider_id(name) for name in ("h", "h-numa0", "h-pf0"))


def report(cell: Mapping[str, Any], pf: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(
        {
            "host": ROOT,
            "name": "h",
            "driver": "sim",
            "providers": [
                {"id": ROOT, "name": "h"},
                {"id": CELL, "name": "h-numa0", "parent": ROOT, **cell},
                {"id": PF, "name": "h-pf0", "parent": CELL, **pf},
            ],
        }
    )


CPUS = {
    "inventories": {"PCPU": {"total": 4}},
    "units": {"PCPU": ["0", "1", "8", "9"]},
    "siblings": [["0", "8"], ["1", "9"]],
}
VFS = {"inventories": {"SRIOV_NET_VF": {"total": 1}}, "units": {"SRIOV_NET_VF": ["0000:3b:02.0"]}}


def test_units_are_read() -> None:
    told = msgspec.json.decode(report(CPUS, VFS), type=Register)
    assert told.providers[1].units == {"PCPU": ("0", "1", "8", "9")}
    assert told.providers[1].siblings == (("0", "8"), ("1", "9"))
    assert told.providers[2].units == {"SRIOV_NET_VF": ("0000:3b:02.0",)}


@pytest.mark.parametrize(
    ("cell", "pf", "why"),
    [
        (CPUS, {"units": VFS["units"]}, "h-pf0 has units of SRIOV_NET_VF and no inventory of it"),
        (CPUS, {**VFS, "inventories": {"SRIOV_NET_VF": {"total": 2}}}, "has 1 unit of SRIOV_NET_VF"),
        (
            {**CPUS, "inventories": {"PCPU": {"total": 4, "allocation_ratio": 2}}},
            VFS,
            "its total must be the same, and its allocation ratio 1",
        ),
        (
            CPUS,
            {"inventories": {"PGPU": {"total": 1}}, "units": {"PGPU": ["8"]}},
            "the unit 8 is there twice: in h-numa0 and in h-pf0",
        ),
        (
            {"inventories": {"PCPU": {"total": 1}}, "units": {"PCPU": ["abc"]}},
            VFS,
            "h-numa0 has the unit abc of PCPU, which is no number",
        ),
        (CPUS, {**VFS, "units": {"SRIOV_NET_VF": ["../etc"]}}, "matching regex"),
        (CPUS, {**VFS, "units": {"SRIOV_NET_VF": ["0" * 65]}}, "matching regex"),
        (CPUS, {**VFS, "units": {"SRIOV_NET_VF": []}}, "length >= 1"),
        ({**CPUS, "siblings": [["0", "8"], ["8"]]}, VFS, "h-numa0 has a cpu twice among the siblings"),
        ({**CPUS, "siblings": [["0", "2"]]}, VFS, "has the sibling 2, which is no unit of PCPU"),
        (CPUS, {**VFS, "siblings": [["0"]]}, "h-pf0 has the sibling 0, which is no unit of PCPU"),
        (
            CPUS,
            {
                "inventories": {"SRIOV_NET_VF": {"total": UNITS_MAX}},
                "units": {"SRIOV_NET_VF": [f"u{number}" for number in range(UNITS_MAX)]},
            },
            f"there are more than {UNITS_MAX} units",
        ),
    ],
)
def test_units_that_cannot_be_are_refused_with_words(
    cell: Mapping[str, Any], pf: Mapping[str, Any], why: str
) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode(report(cell, pf), type=Register)
    assert why in str(refused.value)


def tree_of(*providers: Mapping[str, Any]) -> bytes:
    told = {"host": ROOT, "name": "h", "driver": "sim", "providers": [{"id": ROOT, "name": "h"}, *providers]}
    return msgspec.json.encode(told)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (
            tree_of(
                {"id": CELL, "name": "h-numa0", "parent": PF}, {"id": PF, "name": "h-pf0", "parent": CELL}
            ),
            "the parent of the provider h-numa0 does not come before it",
        ),
        (tree_of({"id": CELL, "name": "h-numa0", "parent": CELL}), "does not come before it"),
        (tree_of({"id": CELL, "name": "another root"}), "does not come before it"),
        (
            tree_of({"id": ROOT, "name": "h-numa0", "parent": ROOT}),
            f"the provider {ROOT} is there twice",
        ),
        (
            tree_of(
                *(
                    {"id": provider_id(f"p{number}"), "name": f"p{number}", "parent": ROOT}
                    for number in range(PROVIDERS_MAX)
                )
            ),
            f"length <= {PROVIDERS_MAX}",
        ),
    ],
)
def test_trees_that_cannot_be_are_refused_with_words(told: bytes, why: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode(told, type=Register)
    assert why in str(refused.value)


FLEET = """
[[host]]
name = "h"
inventories = { VCPU = 8, PCPU = { total = 8, allocation_ratio = 2.0 } }
[[host.children]]
name = "numa0"
inventories = { PCPU = 3, MEMORY_MB = 1024 }
[[host.children]]
name = "numa1"
inventories = { PCPU = 2 }
units = { PCPU = ["1", "5"] }
[[host.children]]
name = "pf0"
inventories = { SRIOV_NET_VF = 9, CUSTOM_PCI_8086_1572 = 1 }
[[host.children]]
name = "gpu0"
inventories = { VGPU = 2 }
"""


def test_units_are_made_up_where_none_are_given(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(FLEET)
    told = register(read_fleet(path)[0], "sim")
    assert told == register(read_fleet(path)[0], "sim")
    # The report is one that a conductor takes.
    assert msgspec.json.decode(msgspec.json.encode(told), type=Register) == told
    host, numa0, numa1, pf, gpu = told.providers
    # What is overcommitted has no units; names that are given are not made up beside them.
    assert host.units == {}
    assert (numa0.units, numa0.siblings) == ({"PCPU": ("0", "2", "3")}, (("0", "2"), ("3",)))
    assert (numa1.units, numa1.siblings) == ({"PCPU": ("1", "5")}, ())
    assert pf.units["SRIOV_NET_VF"][:2] == ("0000:00:00.0", "0000:00:00.1")
    assert pf.units["SRIOV_NET_VF"][8] == "0000:00:01.0"
    assert pf.units["CUSTOM_PCI_8086_1572"] == ("0000:00:01.1",)
    assert len(set(gpu.units["VGPU"])) == 2


def test_every_simulated_gpu_has_units_of_its_own() -> None:
    told = register(simulated_fleet(4)[3], "sim")
    units = [unit for provider in told.providers for unit in provider.units.get("VGPU", ())]
    assert len(set(units)) == len(units) == 8


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("inventories = { PGPU = 2 }\nunits = { PGPU = ['a'] }", "host 1 (h): the provider h has 1 unit"),
        ("units = { PGPU = ['a/b'] }", "host 1 (h): Expected `str` matching regex"),
        ("inventories = { PCPU = 1 }\nunits = { PCPU = ['1'] }\nsiblings = [['2']]", "the sibling 2"),
    ],
)
def test_units_in_a_file_that_are_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(f"[[host]]\nname = 'h'\n{text}")
    with pytest.raises(FleetError) as refusal:
        read_fleet(path)
    assert why in str(refusal.value)
