"""``berth inspect``: JSON of the shape that is promised, a picture, and settings that are refused by name."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from berth.cli import main
from tests.sysroots import TREES, Machine, snc, two_pfs

SCHEMA = {
    "type": "object",
    "required": ["providers", "left_out"],
    "additionalProperties": False,
    "properties": {
        "providers": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["name", "parent", "inventories", "traits", "devices"],
                "additionalProperties": False,
                "properties": {
                    "name": {"type": "string"},
                    "parent": {"type": ["string", "null"]},
                    "inventories": {
                        "type": "object",
                        "additionalProperties": {
                            "type": "object",
                            "required": [
                                *(
                                    "total",
                                    "reserved",
                                    "min_unit",
                                    "max_unit",
                                    "step_size",
                                    "allocation_ratio",
                                )
                            ],
                            "additionalProperties": {"type": "number"},
                        },
                    },
                    "traits": {"type": "array", "items": {"type": "string"}},
                    "devices": {"type": "array", "items": {"type": "object", "required": ["kind"]}},
                },
            },
        },
        "left_out": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path", "reason"],
                "additionalProperties": False,
                "properties": {"path": {"type": "string"}, "reason": {"type": "string"}},
            },
        },
    },
}


@pytest.mark.parametrize("name", TREES)
def test_the_json_has_the_shape_that_is_promised(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    TREES[name](tmp_path)
    assert main(["inspect", "--sysroot", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMA)
    names = [provider["name"] for provider in found["providers"]]
    parents = [provider["parent"] for provider in found["providers"]]
    assert parents[0] is None
    assert set(parents[1:]) <= set(names)
    assert len(set(names)) == len(names)


def test_options_and_the_file_are_the_same_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_pfs(tmp_path / "root")
    file = tmp_path / "agent.toml"
    file.write_text(
        f'sysroot = "{tmp_path}/root"\ndedicated_cpus = "4-7"\nreserved_memory_mb = ["0=1024"]\n'
        'disk_gb = 50\nphysnets = ["ens1f0=physnet1"]\nhost_name = "file"\n'
    )
    assert main(["inspect", "--config", str(file), "--json", "--host-name", "flag"]) == 0
    by_file = capsys.readouterr().out
    flags = ["--dedicated-cpus", "4-7", "--reserved-memory-mb", "0=1024", "--disk-gb", "50"]
    flags += ["--physnets", "ens1f0=physnet1", "--host-name", "flag", "--sysroot", str(tmp_path / "root")]
    assert main(["inspect", "--json", *flags]) == 0
    assert capsys.readouterr().out == by_file
    assert json.loads(by_file)["providers"][0]["name"] == "flag"


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--dedicated-cpus", "1-"], "dedicated_cpus: '1-' is refused: expected numbers of cpus"),
        (["--reserved-cpus", "7-3"], "reserved_cpus: '7-3' is refused"),
        (["--dedicated-cpus", "1-4", "--reserved-cpus", "4"], "cpu 4 cannot be both"),
        (["--devices-allowed", "8086"], "'8086' is not understood: a device is vendor:product"),
        (["--devices-denied", "8086:1572,3b:00.0"], "'3b:00.0' is not understood"),
        (["--devices-allowed", "0x2"], "'0x2' is not understood"),
        (["--devices-allowed", "0x02,0x02"], "'0x02' is there twice"),
        (["--reserved-memory-mb", "a=1"], "'a=1' is not understood: expected CELL=MIB"),
        (["--reserved-memory-mb", "0=1,0=2"], "'0' is there twice"),
        (["--reserved-memory-mb", "0=99999999999"], "is not understood"),
        (["--reserved-memory-mb", "7=1"], "names the cell 7, and the host has the cells 0, 1"),
        (["--physnets", "ens1f0"], "'ens1f0' is not understood: expected NIC=NETWORK"),
        (["--mdev-types", "gpu=nvidia-1"], "'gpu=nvidia-1' is not understood: expected ADDRESS=TYPE"),
        (["--disk-gb", "0"], "disk_gb: 0 is refused: it must be a whole number from 1"),
        (["--disk-gb", "9" * 30], "it must be a whole number"),
        (["--host-name", "a b"], "host_name: 'a b' is refused"),
        (
            ["--devices-allowed", ",".join(f"{n:04x}:*" for n in range(1001))],
            "1001 entries are more than 1000",
        ),
        (["--sysroot", "/nowhere"], "sysroot: /nowhere is not a folder"),
        (["--provider-config", "/nowhere"], "/nowhere: the folder cannot be read"),
        (["--config", "/nowhere.toml"], "/nowhere.toml: cannot read the settings"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(
    flags: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_pfs(tmp_path)
    assert main(["inspect", "--sysroot", str(tmp_path), *flags]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("dedicated_cpu = '1'", "unknown setting dedicated_cpu; did you mean dedicated_cpus?"),
        ("listen = 'x'", "unknown setting listen; there are sysroot, host_name"),
        ("dedicated_cpus = 1", "dedicated_cpus: 1 is refused: it must be a string"),
        ("physnets = 'a=b'", "it must be a list of strings"),
        ("[discovery]", "unknown table [discovery]"),
        ("=", "invalid TOML"),
    ],
)
def test_a_file_that_is_not_understood_is_refused(
    text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(text)
    assert main(["inspect", "--config", str(file)]) == 2
    assert problem in capsys.readouterr().err


def test_the_picture_shows_the_tree_and_what_was_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snc(tmp_path)
    assert main(["inspect", "--sysroot", str(tmp_path), "--dedicated-cpus", "2-3,10-11"]) == 0
    text = capsys.readouterr().out
    traits = "[CUSTOM_NUMA_SOCKET_0, HW_NUMA_ROOT, 14 traits"
    assert f"├── node-1-numa1  MEMORY_MB 32768  PCPU 4  PCPU: 2-3,10-11  {traits}" in text
    assert "│   └── socket 0: 2 cores, cpus 2-3,10-11" in text
    assert "left out:\n  sys/bus/pci/devices/0000:02:00.0: it is the console" in text
    assert "\x1b" not in text


def test_a_terminal_gets_colours_and_no_escape_of_somebody_elses(tmp_path: Path) -> None:
    snc(tmp_path)
    Machine(tmp_path).write("sys/bus/pci/devices/\x1b]0;owned\x07", "")
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "berth.cli", "inspect", "--sysroot", str(tmp_path)]
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"}
    env.pop("NO_COLOR", None)
    with subprocess.Popen(command, stdout=slave, env=env) as process:
        os.close(slave)
        shown = b""
        while part := _read(master):
            shown += part
        assert process.wait(60) == 0
    os.close(master)
    assert b"\x1b[1m" in shown
    assert b"\x1b]0" not in shown
    assert b"\\x1b]0;owned\\x07" in shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        # The other end was closed.
        return b""
