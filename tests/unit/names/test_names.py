"""Every name that Nova 34 validates has its row here, and what is refused is refused wherever it is given.

The list is made from Nova itself (``list_nova_names.py``), with its version.
"""

import json
import re
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from berth.api.compute import (
    flavors,
    hypervisors,
    instance_actions,
    migrations,
    server_groups,
    services,
)
from berth.api.compute.servers import actions, create, show, update
from berth.api.compute.servers.fields import FIELDS, HINTS
from berth.scheduler.spec_table import (
    EXTRA_SPECS,
    IMAGE_PROPERTIES,
    OLD_NAMES,
    Fate,
    extra_spec,
    image_property,
    wrong_extra_spec,
    wrong_image_property,
    wrong_metadata,
)
from tests.unit.image.test_images import IMAGES
from tests.worlds import CIRROS, SMALL, RegionWorld, uuid_of

pytestmark = pytest.mark.fast

NOVA: Final[dict[str, Any]] = json.loads((Path(__file__).parent / "nova_34_names.json").read_text())
PARTS: Final = {
    "{group}": "1",
    "{num}": "0",
    "{key}": "ssd",
    "{filter}": "",
    "{resource}": "X",
    "{trait}": "X",
}
BODIES: Final[dict[str, type[msgspec.Struct]]] = {
    "create": create.NewServer,
    "update": update.ChangedServer,
    "rebuild": actions.Rebuild,
    "resize": actions.Resize,
    "migrate": actions.Migrate,
    "os-migrateLive": actions.LiveMigrate,
    "evacuate": actions.Evacuate,
    "unshelve": actions.Unshelve,
    "lock": actions.Lock,
}
QUERIES: Final[dict[str, dict[str, int]]] = {
    "servers": show.QUERY,
    "flavors": flavors.QUERY,
    "migrations": migrations.QUERY,
    "hypervisors": hypervisors.QUERY,
    "services": services.QUERY,
    "server groups": server_groups.QUERY,
    "instance actions": instance_actions.QUERY,
    "aggregates": {},
    "availability zones": {},
}
NO_FILTERS: Final = {
    "servers": {
        "auto_disk_config",
        "block_device_mapping",
        "created_at",
        "image_ref",
        "info_cache",
        "kernel_id",
        "launch_index",
        "launched_at",
        "locked_by",
        "metadata",
        "pci_devices",
        "progress",
        "ramdisk_id",
        "root_device_name",
        "security_groups",
        "services",
        "soft_deleted",
        "system_metadata",
        "terminated_at",
    },
    "flavors": {"name"},
}
"""What Nova's lists can be narrowed by, and these cannot: refused by name."""


def spelled(name: str) -> str:
    """A key of this kind."""
    return re.sub(r"\{\w+\}", lambda part: PARTS[part.group()], name)


TEXTS: Final = {"hw:mem_page_size": "large", "pci_passthrough:alias": "gpu:1"}
"""Values of keys for which Nova takes any text here, and judges it later."""


def valid(rule: dict[str, Any]) -> str:
    """A value that Nova takes."""
    if rule["name"] in TEXTS:
        return TEXTS[rule["name"]]
    if "enum" in rule:
        return str(rule["enum"][0])
    return {"int": str(rule.get("min", 1)), "bool": "true"}.get(rule["type"], "0")


SPECS: Final = {spelled(rule["name"]): valid(rule) for rule in NOVA["extra_specs"]}


def refused_specs() -> list[str]:
    return [key for key in SPECS if (row := extra_spec(key)) is not None and row.fate is Fate.REFUSED]


def refused_properties() -> list[str]:
    keys = [
        key.replace("{N}", "0") for row in IMAGE_PROPERTIES for key in row.keys if row.fate is Fate.REFUSED
    ]
    return keys + [old for old, new in OLD_NAMES.items() if new in keys]


# -- every name is here -------------------------------------------------------------------------


def test_the_list_is_that_of_nova_34() -> None:
    assert NOVA["nova"].startswith("34.")
    assert len(NOVA["extra_specs"]) > 500
    assert len(NOVA["image_properties"]) > 80


def test_every_extra_spec_has_its_row() -> None:
    assert [key for key in SPECS if extra_spec(key) is None] == []


def test_no_extra_spec_of_ours_is_unknown_to_nova_but_a_few() -> None:
    known = {rule["name"].split("{")[0] for rule in NOVA["extra_specs"]}
    ours = {key.split("{")[0] for row in EXTRA_SPECS for key in row.keys}
    assert ours - known == {"same_subtree", "capabilities:", "berth:disk"}


def test_what_is_used_or_passed_takes_what_nova_takes_and_no_more() -> None:
    for rule in NOVA["extra_specs"]:
        key = spelled(rule["name"])
        row = extra_spec(key)
        assert row is not None
        if row.fate is Fate.REFUSED:
            continue
        for value in rule.get("enum", [valid(rule)]):
            assert row.values.are(str(value)), (key, value)
        if rule["type"] != "str" or "enum" in rule:
            assert not row.values.are("banana"), key
        if "min" in rule:
            assert not row.values.are(str(rule["min"] - 1)), key


def test_every_property_of_an_image_has_its_row() -> None:
    assert [name for name in NOVA["image_properties"] if image_property(name) is None] == []
    assert NOVA["old_image_properties"] == OLD_NAMES


def test_values_of_properties_are_novas() -> None:
    narrower = {
        "hw_vif_model": {"sriov"},
        "hw_vm_mode": {"xen", "uml", "exe"},
        "img_config_drive": {"mandatory"},
    }
    for name, rule in NOVA["image_properties"].items():
        row = image_property(name)
        assert row is not None
        if row.fate is Fate.REFUSED or "enum" not in rule:
            continue
        refused = {value for value in rule["enum"] if not row.values.are(value)}
        assert refused == narrower.get(name, set()), name
        assert not row.values.are("banana"), name


def test_every_hint_has_its_row() -> None:
    assert sorted(HINTS) == NOVA["hints"]


@pytest.mark.parametrize("operation", NOVA["fields"])
def test_every_field_has_its_row_and_can_be_read(operation: str) -> None:
    of_nova = [name for name in sorted(FIELDS[operation]) if not name.startswith("berth:")]
    assert of_nova == NOVA["fields"][operation]
    names = {field.encode_name for field in msgspec.structs.fields(BODIES[operation])}
    assert names == set(FIELDS[operation])


@pytest.mark.parametrize("what", NOVA["filters"])
def test_every_filter_of_a_list_is_known_or_refused(what: str) -> None:
    assert set(NOVA["filters"][what]) - set(QUERIES[what]) == NO_FILTERS.get(what, set())


def test_every_key_of_an_aggregate_that_nova_reads_is_used_or_refused() -> None:
    used = {"availability_zone", "filter_tenant_id"}
    refused = {key for key in NOVA["aggregate_keys"] if wrong_metadata({key: "1"}) is not None}
    assert set(NOVA["aggregate_keys"]) - refused == used


# -- what is refused is refused -----------------------------------------------------------------


def test_every_refused_key_is_refused_by_name() -> None:
    for key in refused_specs():
        wrong = wrong_extra_spec({key: SPECS[key]})
        assert wrong is not None, key
        assert (wrong.key, wrong.accepted.startswith("left out: ")) == (key, True)
    for key in refused_properties():
        wrong = wrong_image_property({key: "1"})
        assert wrong is not None, key
        assert (wrong.key, wrong.accepted.startswith("left out: ")) == (key, True)


async def test_refused_extra_specs_are_refused_at_flavors_and_servers(region: RegionWorld) -> None:
    await region.fleet()
    for number, key in enumerate(refused_specs()):
        given = {key: SPECS[key]}
        path = f"/flavors/{SMALL.id}/os-extra_specs"
        answer = await region.compute("POST", path, {"extra_specs": given})
        assert (answer.status, key in answer.json["badRequest"]["message"]) == (400, True), key
        # One that was made before is refused when a server is to be made of it.
        old = type(SMALL)(id=f"old-{number}", name=f"old-{number}", vcpus=1, memory_mb=1, extra_specs=given)
        await region.put(old)
        body = {"server": {"name": "x", "flavorRef": old.id, "imageRef": CIRROS.id}}
        answer = await region.compute("POST", "/servers", body)
        assert (answer.status, key in answer.json["badRequest"]["message"]) == (400, True), key


async def test_refused_properties_are_refused_at_images(region: RegionWorld) -> None:
    for key in refused_properties():
        answer = await region.ask("POST", IMAGES, {"name": "x", key: "1"}, token="ann:blue")
        # Images may name a kernel, and no server is made from those: tests/unit/image/test_images.py.
        expected = 201 if key in ("kernel_id", "ramdisk_id") else 400
        assert (answer.status, key in answer.body.decode()) == (expected, True), key
    made = await region.ask("POST", IMAGES, {"name": "x", "os_distro": "debian"}, token="ann:blue")
    assert made.status == 201
    patch = [{"op": "add", "path": "/hw_locked_memory", "value": "true"}]
    media = {"content-type": "application/openstack-images-v2.1-json-patch"}
    answer = await region.ask("PATCH", f"{IMAGES}/{made.json['id']}", patch, token="ann:blue", headers=media)
    assert answer.status == 400


async def test_refused_properties_are_refused_at_servers(region: RegionWorld) -> None:
    await region.fleet()
    for number, key in enumerate(refused_properties()):
        old = type(CIRROS)(
            id=uuid_of(2000 + number),
            name="old",
            status="active",
            visibility="public",
            properties={key: "1"},
        )
        await region.put(old)
        body = {"server": {"name": "x", "flavorRef": SMALL.id, "imageRef": old.id}}
        answer = await region.compute("POST", "/servers", body)
        assert (answer.status, key in answer.json["badRequest"]["message"]) == (400, True), key
