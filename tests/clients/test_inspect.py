"""``berth inspect`` on the machine at hand, beside what others say of it: lscpu, lspci, numactl."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from berth.agent.discovery.sysroot import read_ids
from tests.packages import MACHINE, require


def ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    require(*MACHINE)
    answer = json.loads(ask(sys.executable, "-m", "berth.cli", "inspect", "--json"))
    assert isinstance(answer, dict)
    return answer


def devices(found: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [
        device for provider in found["providers"] for device in provider["devices"] if device["kind"] == kind
    ]


def test_cpus_are_those_of_lscpu(found: dict[str, Any]) -> None:
    """Which are online, and which of them are in which core, socket and cell."""
    rows = json.loads(ask("lscpu", "--json", "--extended=CPU,CORE,SOCKET,NODE,ONLINE"))["cpus"]
    online = [row for row in rows if str(row["online"]).lower() in ("true", "yes")]
    cores: dict[tuple[Any, Any], set[int]] = {}
    for row in online:
        cores.setdefault((row["socket"], row["core"]), set()).add(int(row["cpu"]))
    assert sorted(sorted(cpus) for cpus in cores.values()) == sorted(
        sorted(core["cpus"]) for core in devices(found, "core")
    )
    root = found["providers"][0]["name"]
    for provider in found["providers"]:
        cell = provider["name"].removeprefix(f"{root}-numa")
        if cell.isdigit():
            expected = {int(row["cpu"]) for row in online if str(row["node"]) == cell}
            cpus = {
                cpu for device in provider["devices"] if device["kind"] == "core" for cpu in device["cpus"]
            }
            assert cpus == expected
            assert provider["inventories"].get("VCPU", {}).get("total", 0) == len(expected)


def test_pci_devices_are_those_of_lspci(found: dict[str, Any]) -> None:
    lines = ask("lspci", "-n", "-D").splitlines()
    rows = [re.match(r"(\S+) ([0-9a-f]{4}): ([0-9a-f]{4}:[0-9a-f]{4})", line) for line in lines]
    expected = sorted(row.groups() for row in rows if row is not None)
    assert len(expected) == len(lines)
    assert expected == sorted(
        (device["address"], device["class"][:4], f"{device['vendor']}:{device['product']}")
        for device in devices(found, "pci")
    )


def test_cells_are_those_of_numactl(found: dict[str, Any]) -> None:
    text = ask("numactl", "--hardware")
    nodes = read_ids(re.sub(r".*\((.*)\)", r"\1", text.splitlines()[0])) or frozenset()
    root = found["providers"][0]["name"]
    providers = {provider["name"]: provider for provider in found["providers"]}
    cells = {int(name.removeprefix(f"{root}-numa")) for name in providers if name.startswith(f"{root}-numa")}
    assert Path("/sys/devices/system/node/node0").exists() == bool(cells)
    if not cells:
        return
    assert cells == nodes
    for cell in cells:
        inventories = providers[f"{root}-numa{cell}"]["inventories"]
        (size_mb,) = re.findall(rf"^node {cell} size: (\d+) MB$", text, re.MULTILINE)
        pages_mb = sum(
            inventories.get(f"CUSTOM_MEMORY_PAGES_{name}", {"total": 0})["total"] * mb
            for name, mb in (("2M", 2), ("1G", 1024))
        )
        assert abs(inventories.get("MEMORY_MB", {"total": 0})["total"] + pages_mb - int(size_mb)) <= 1
