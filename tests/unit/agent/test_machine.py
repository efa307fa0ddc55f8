"""An agent with ``--discover``: it registers what discovery finds, and again when that has changed."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from berth.agent.discovery import DiscoveredHost, Discovery, DiscoveryError, DiscoverySettings, discover
from berth.agent.discovery.sysroot import Budget
from berth.agent.fleet import provider_id
from berth.agent.machine import Machine
from berth.agent.process import AgentSettings, run_agents
from berth.cell.protocol import Register
from berth.cli import main
from tests import sysroots
from tests.unit.agent.conductors import PACE, QUICK, FakeConductor, command, served
from tests.waiting import until

HOST = provider_id("node-1")
SOON_S = 0.05


def names(conductor: FakeConductor) -> set[str]:
    register = conductor.registered.get(HOST)
    return set() if register is None else {provider.name for provider in register.providers}


def make_machine(root: Path, look_every_s: float = SOON_S, dedicated_cpus: str | None = None) -> Machine:
    return Machine(
        Discovery(DiscoverySettings(sysroot=str(root), dedicated_cpus=dedicated_cpus)), look_every_s
    )


class Agents:
    """The agent of a machine, at work."""

    def __init__(self, url: str, data: Path, machine: Machine) -> None:
        self._stop = asyncio.Event()
        given = AgentSettings(
            conductor=url, data=data, machine=machine, token="secret", behaviour=QUICK, seed=1, pace=PACE
        )
        self._task = asyncio.create_task(run_agents(given, self._stop))

    async def stop(self) -> None:
        self._stop.set()
        await self._task


def remove_pf(root: Path) -> None:
    (root / "sys/bus/pci/devices/0000:af:00.0").unlink()


async def test_a_machine_registers_and_carries_commands_out(tmp_path: Path) -> None:
    sysroots.two_pfs(tmp_path / "root")
    conductor = FakeConductor()
    async with served(conductor) as url:
        agents = Agents(url, tmp_path / "data", make_machine(tmp_path / "root", dedicated_cpus="4-7"))
        await until(lambda: HOST in conductor.registered)
        assert (await conductor.mailbox.deliver(HOST, command("build"), 60)).error is None
        await agents.stop()
    register = conductor.registered[HOST]
    assert isinstance(register, Register)
    assert (register.name, register.driver) == ("node-1", "sim")
    by_name = {provider.name: provider for provider in register.providers}
    assert by_name["node-1-numa1"].units["PCPU"] == ("4", "5", "6", "7")
    assert len(by_name["node-1-pci-0000:3b:00.0"].units["SRIOV_NET_VF"]) == 8


async def test_it_registers_again_when_the_machine_has_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "berth.agent")
    sysroots.two_pfs(tmp_path / "root")
    conductor = FakeConductor()
    async with served(conductor) as url:
        agents = Agents(url, tmp_path / "data", make_machine(tmp_path / "root"))
        await until(lambda: "node-1-pci-0000:af:00.0" in names(conductor))
        # The conductor is away at first: it must not miss the news.
        conductor.answers["/agent/v1/register"] = [503, 503, 400]
        remove_pf(tmp_path / "root")
        await until(lambda: "node-1-pci-0000:af:00.0" not in names(conductor))
        sysroots.Machine(tmp_path / "root").write("sys/devices/system/cpu/online", "0-7,9-15")
        await until(lambda: conductor.registered[HOST].providers[1].inventories["VCPU"].total == 7)
        registered = conductor.registered[HOST]
        await asyncio.sleep(4 * SOON_S)
        # Nothing has changed since: it is silent.
        assert conductor.registered[HOST] is registered
        await agents.stop()
    assert "registering again: gone node-1-pci-0000:af:00.0" in caplog.text
    assert "registering again: changed node-1-numa0" in caplog.text


async def test_a_look_that_cannot_be_used_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The cell whose memory is reserved is gone: a report without it would lose the reservation."""
    root = tmp_path / "root"
    sysroots.two_pfs(root)
    machine = Machine(
        Discovery(DiscoverySettings(sysroot=str(root), reserved_memory_mb=("1=1024",))), look_every_s=3600
    )
    changes: list[str] = []
    watch = asyncio.create_task(machine.watch(lambda: changes.append("changed")))
    before = machine.providers
    shutil.rmtree(root / "sys/devices/system/node/node1")
    machine.look_soon()
    await until(lambda: "discovery failed, keeping the last report" in caplog.text)
    assert "names the cell 1, and the host has the cells 0" in caplog.text
    assert machine.providers is before
    assert changes == []
    watch.cancel()


def limit_looks(monkeypatch: pytest.MonkeyPatch, *entries: int) -> list[float]:
    """Have looks read so many entries at most, the last number from then on; the seconds that each was given
    are returned."""
    limits = list(entries)
    seconds: list[float] = []

    def look(
        root: Path, settings: DiscoverySettings, *, data: Path | None = None, budget: Budget | None = None
    ) -> DiscoveredHost:
        given = budget or Budget()
        seconds.append(given.seconds)
        limit = limits.pop(0) if len(limits) > 1 else limits[0]
        return discover(root, settings, data=data, budget=given._replace(entries=limit))

    monkeypatch.setattr("berth.agent.discovery.discover", look)
    return seconds


def test_a_first_look_that_was_cut_short_is_repeated_with_more_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sysroots.two_pfs(tmp_path / "root")
    whole = make_machine(tmp_path / "root").providers
    assert len(whole) == 5
    seconds = limit_looks(monkeypatch, 20, 500_000)
    # The provider that a file names and the cell of the setting were not read the first time.
    folder = tmp_path / "providers"
    folder.mkdir()
    (folder / "a.yaml").write_text(
        "meta: {schema_version: '1.0'}\n"
        "providers: [{identification: {name: 'node-1-pci-0000:af:00.0'}, traits: {additional: [CUSTOM_X]}}]\n"
    )
    settings = DiscoverySettings(
        sysroot=str(tmp_path / "root"), provider_config=str(folder), reserved_memory_mb=("1=1024",)
    )
    machine = Machine(Discovery(settings))
    assert [provider.id for provider in machine.providers] == [provider.id for provider in whole]
    assert machine.providers[2].inventories["MEMORY_MB"].reserved == 1024
    assert "CUSTOM_X" in machine.providers[-1].traits
    assert seconds == [3.0, 30.0]


@pytest.mark.parametrize("entries", [10, 100, 250])
def test_a_machine_that_cannot_be_read_whole_does_not_start(
    entries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sysroots.two_pfs(tmp_path)
    limit_looks(monkeypatch, entries)
    with pytest.raises(DiscoveryError) as refused:
        make_machine(tmp_path)
    assert f"node-1: the machine was not read whole: {entries} files and folders were read" in str(
        refused.value
    )


async def test_a_look_that_was_cut_short_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sysroots.two_pfs(tmp_path)
    machine = make_machine(tmp_path, look_every_s=3600)
    before = machine.providers
    watch = asyncio.create_task(machine.watch(lambda: None))
    limit_looks(monkeypatch, 100)
    machine.look_soon()
    await until(lambda: "discovery was cut short, keeping the last report" in caplog.text)
    assert machine.providers is before
    watch.cancel()


def test_the_process_looks_again_on_sighup(tmp_path: Path) -> None:
    """The whole command, against a conductor on a socket."""
    asyncio.run(_have_a_process_look_again(tmp_path))


async def _have_a_process_look_again(tmp_path: Path) -> None:
    sysroots.two_pfs(tmp_path / "root")
    conductor = FakeConductor()
    async with served(conductor) as url:
        flags = ["--conductor", url, "--driver", "sim", "--data", str(tmp_path / "data"), "--discover"]
        flags += ["--sysroot", str(tmp_path / "root"), "--disk-gb", "100", "--build-seconds", "0"]
        env = {**os.environ, "BERTH_AGENT_TOKEN": "a" * 40}
        process = subprocess.Popen([sys.executable, "-m", "berth.cli", "agent", *flags], env=env)
        try:
            await until(lambda: "node-1-pci-0000:af:00.0" in names(conductor))
            assert conductor.registered[HOST].providers[0].inventories["DISK_GB"].total == 100
            remove_pf(tmp_path / "root")
            process.send_signal(signal.SIGHUP)
            await until(lambda: "node-1-pci-0000:af:00.0" not in names(conductor))
            process.terminate()
            assert await asyncio.to_thread(process.wait, 60) == 0
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--sysroot", "/"], "--sysroot needs --discover"),
        (["--config", "/etc/agent.toml"], "--config needs --discover"),
        (["--discover", "--prefix", "x"], "--prefix is for simulated fleets, not for --discover"),
        (["--discover", "--cell", "cell1"], "--cell is for simulated fleets"),
        (["--discover", "--cells", "cell1,cell2"], "--cells is for simulated fleets"),
        (["--discover", "--dedicated-cpus", "x"], "dedicated_cpus: 'x' is refused"),
        (["--discover", "--sysroot", "/nowhere"], "sysroot: /nowhere is not a folder"),
        (["--discover", "--sysroot", "{here}"], "does not tell the machine's name: use --host-name"),
        (["--discover", "--provider-config", "{here}"], "mine.yaml:1: meta is missing in the file"),
    ],
)
def test_an_agent_does_not_start_with_settings_that_do_not_fit(
    flags: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text("providers: []\n")
    given = [flag.format(here=tmp_path) for flag in flags]
    rest = ["--conductor", "http://127.0.0.1:9", "--driver", "sim", "--data", str(tmp_path / "data")]
    assert main(["agent", *rest, *given]) == 2
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
