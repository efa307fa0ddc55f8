"""Nova's provider.yaml: what it adds, and refusals that name file and line."""

import os
from pathlib import Path

import pytest

from berth.agent.discovery import Discovery, DiscoverySettings, ProviderConfigError
from berth.agent.discovery.provider_config import BYTES_MAX, ENTRIES_MAX, FILES_MAX, read_provider_config
from berth.agent.fleet import provider_id
from tests.sysroots import two_pfs

HEAD = 'meta:\n  schema_version: "1.0"\n'


def entry(identification: str, *, inventories: str = "", traits: str = "") -> str:
    text = f"  - identification: {{{identification}}}\n"
    if inventories:
        text += f"    inventories:\n      additional: [{inventories}]\n"
    if traits:
        text += f"    traits:\n      additional: [{traits}]\n"
    return text


def file(*entries: str) -> str:
    return HEAD + "providers:\n" + "".join(entries)


def discovery(tmp_path: Path, **files: str) -> Discovery:
    folder = tmp_path / "providers"
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    two_pfs(tmp_path / "root")
    return Discovery(DiscoverySettings(sysroot=str(tmp_path / "root"), provider_config=str(folder)))


def test_providers_are_named_in_three_ways(tmp_path: Path) -> None:
    found = discovery(
        tmp_path,
        a=file(entry("uuid: $COMPUTE_NODE", traits="CUSTOM_GOLD")),
        b=file(
            entry(
                "name: node-1-numa0", inventories="{CUSTOM_LICENSE: {total: 10, reserved: 2, max_unit: 3}}"
            ),
            entry(
                f"uuid: {provider_id('node-1-pci-0000:3b:00.0').upper()}",
                inventories="{CUSTOM_A: {total: 1}}, {CUSTOM_B: {total: 7, allocation_ratio: 2.5}}",
                traits="CUSTOM_X, CUSTOM_Y",
            ),
        ),
    ).look()
    by_name = {provider.name: provider for provider in found.providers}
    assert "CUSTOM_GOLD" in by_name["node-1"].traits
    license = by_name["node-1-numa0"].inventories["CUSTOM_LICENSE"]
    assert (license.total, license.reserved, license.max_unit) == (10, 2, 3)
    nic = by_name["node-1-pci-0000:3b:00.0"]
    assert {"CUSTOM_X", "CUSTOM_Y", "HW_NIC_SRIOV"} <= set(nic.traits)
    assert nic.inventories["CUSTOM_B"].allocation_ratio == 2.5
    assert nic.inventories["SRIOV_NET_VF"].total == 8


NAME = "name: node-1"


def test_a_class_and_a_trait_may_have_the_same_name(tmp_path: Path) -> None:
    """Also a trait and a class that the agent finds."""
    found = discovery(
        tmp_path,
        mine=file(
            entry(NAME, inventories="{CUSTOM_A: {total: 1}}", traits="CUSTOM_A"),
            entry("name: node-1-numa0", traits="CUSTOM_MEMORY_PAGES_2M"),
        ),
    ).look()
    assert "CUSTOM_A" in found.providers[0].inventories
    assert "CUSTOM_A" in found.providers[0].traits
    cell = found.providers[1]
    assert "CUSTOM_MEMORY_PAGES_2M" in cell.inventories
    assert "CUSTOM_MEMORY_PAGES_2M" in cell.traits


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        (file(entry("name: nobody")), 4, "there is no provider nobody; there are node-1, node-1-numa0"),
        (file(entry(f"uuid: {provider_id('x')}")), 4, "there is no provider"),
        (file(entry(NAME), entry(NAME)), 5, "the provider node-1 is in"),
        (file(entry(NAME), entry("uuid: $COMPUTE_NODE")), 5, "by another name"),
        (file(entry(NAME, traits="CUSTOM_A, CUSTOM_A")), 6, "CUSTOM_A is there twice"),
        (
            file(entry(NAME, inventories="{CUSTOM_A: {total: 1}}, {CUSTOM_A: {total: 2}}")),
            6,
            "CUSTOM_A is there twice",
        ),
        (
            file(entry("name: node-1-numa0", inventories="{CUSTOM_MEMORY_PAGES_2M: {total: 1}}")),
            6,
            "CUSTOM_MEMORY_PAGES_2M is there already: the agent finds it at node-1-numa0",
        ),
        (file(entry(NAME, traits="HW_CPU_X86_AVX")), 6, "'HW_CPU_X86_AVX' is not a custom trait"),
        (file(entry(NAME, traits="CUSTOM_a")), 6, "is not a custom trait"),
        (file(entry(NAME, traits="1")), 6, "a trait must be a string"),
        (file(entry(NAME, inventories="{VCPU: {total: 1}}")), 6, "'VCPU' is not a custom resource class"),
        (file(entry(NAME, inventories="{CUSTOM_A: {total: 0}}")), 6, "CUSTOM_A: Expected `int` >= 1"),
        (file(entry(NAME, inventories="{CUSTOM_A: {total: 010}}")), 6, "total must be a number"),
        (file(entry(NAME, inventories="{CUSTOM_A: {total: many}}")), 6, "total must be a number"),
        (
            file(entry(NAME, inventories=f"{{CUSTOM_A: {{total: {'9' * 5000}}}}}")),
            6,
            "total must be a number",
        ),
        (file(entry(NAME, inventories="{CUSTOM_A: {reserved: 1}}")), 6, "total is missing in CUSTOM_A"),
        (file(entry(NAME, inventories="{CUSTOM_A: {total: 1, size: 1}}")), 6, "unknown key size in CUSTOM_A"),
        (
            file(entry(NAME, inventories="{CUSTOM_A: {total: 1, reserved: 2}}")),
            6,
            "2 cannot be reserved of 1",
        ),
        (
            file(entry(NAME, inventories="{CUSTOM_A: {total: 10, min_unit: 5, max_unit: 2}}")),
            6,
            "CUSTOM_A: min_unit 5 is above max_unit 2",
        ),
        (
            file(entry(NAME, inventories="{CUSTOM_A: {total: 3, min_unit: 5}}")),
            6,
            "CUSTOM_A: min_unit 5 is above max_unit 3",
        ),
        (file(entry("name: a, uuid: b")), 4, "either name or uuid is needed, and not both"),
        (file(entry("")), 4, "either name or uuid is needed"),
        (file(entry("uuid: me")), 4, "'me' is not a uuid, and not $COMPUTE_NODE"),
        (file("  - traits: {}\n"), 4, "identification is missing in a provider"),
        (file("  - 1\n"), 4, "a provider must be keys and values"),
        (HEAD + "providers: {}\n", 3, "providers must be a list"),
        (HEAD + "provider: []\n", 3, "unknown key provider in the file"),
        ("meta: {schema_version: '1.1'}\n", 1, "schema_version is '1.1', not '1.0'"),
        ("meta: {schema_version: 1.0}\n", 1, "schema_version must be a string"),
        ("providers: []\n", 1, "meta is missing in the file"),
        (HEAD + "providers: [\n", 4, "this is not YAML"),
        (HEAD + "providers: \x00\n", 3, "this is not YAML: special characters are not allowed"),
        ("", 1, "it is empty"),
        (HEAD + "a: &a [*a]\n", 3, "unknown key a"),
        ("meta: {}\nmeta: {}\n", 2, "meta is there twice"),
        (file(entry(NAME, traits=", ".join(["CUSTOM_A"] * (ENTRIES_MAX + 1)))), 6, "must be a list of 1000"),
    ],
)
def test_a_refusal_names_file_and_line(text: str, line: int, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ProviderConfigError) as refused:
        discovery(tmp_path, mine=text).look()
    assert str(refused.value).startswith(f"{tmp_path}/providers/mine.yaml:{line}: ")
    assert problem in str(refused.value)


@pytest.mark.parametrize("text", ["", "[" * 1_500, "\0", "x" * (BYTES_MAX + 1)])
def test_what_is_no_file_of_this_kind_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ProviderConfigError, match=r"mine\.yaml"):
        discovery(tmp_path, mine=text)


def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.yaml")
    with pytest.raises(ProviderConfigError, match=r"a\.yaml: it is not a file"):
        read_provider_config(tmp_path)


def test_a_provider_of_two_files_is_refused_with_both(tmp_path: Path) -> None:
    with pytest.raises(ProviderConfigError) as refused:
        discovery(tmp_path, a=file(entry(NAME)), b=file(entry(NAME)))
    text = str(refused.value)
    assert "b.yaml:4: the provider node-1 is in" in text
    assert "a.yaml:4 already" in text


def test_other_files_are_not_read_and_their_number_has_a_limit(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("not yaml: [")
    assert read_provider_config(tmp_path) == ()
    for number in range(FILES_MAX + 1):
        (tmp_path / f"{number}.yaml").write_text(HEAD)
    with pytest.raises(ProviderConfigError, match="101 files are more than 100"):
        read_provider_config(tmp_path)


def test_a_device_that_goes_later_takes_its_additions_with_it(tmp_path: Path) -> None:
    looking = discovery(tmp_path, mine=file(entry("name: node-1-pci-0000:3b:00.0", traits="CUSTOM_X")))
    assert any("CUSTOM_X" in provider.traits for provider in looking.look().providers)
    (tmp_path / "root/sys/bus/pci/devices/0000:3b:00.0").unlink()
    assert not any("CUSTOM_X" in provider.traits for provider in looking.look().providers)
