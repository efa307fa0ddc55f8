"""What callers got and should not have: those of the system, readers, those without roles."""

import json
from pathlib import Path

import pytest

from tests.worlds import RegionWorld, uuid_of

pytestmark = pytest.mark.fast

LISTS = (
    "/servers/detail?all_tenants=1",
    "/servers",
    "/os-services",
    "/os-hypervisors/detail",
    "/os-server-groups?all_projects=1",
    "/os-migrations",
    "/os-quota-sets/blue/detail",
    "/flavors",
    "/limits",
)
ENTRY = '[[token]]\ntoken = "ann-token-0123456789"\nuser = "ann"\nproject = "blue"\n'
FULL = {"disk_format": "raw", "container_format": "bare"}


@pytest.mark.parametrize("path", LISTS)
async def test_an_administrator_of_the_system_is_not_one_of_the_projects(
    region: RegionWorld, path: str
) -> None:
    headers = {"openstack-system-scope": "all", "openstack-api-version": "compute 2.94"}
    answer = await region.ask("GET", f"/compute/v2.1{path}", headers=headers)
    assert answer.status == 403


@pytest.mark.parametrize("roles", ["reader", "auditor", "", "service"])
async def test_images_are_written_by_members(region: RegionWorld, roles: str) -> None:
    made = await region.ask("POST", "/image/v2/images", {"name": "x"} | FULL, token="ann:blue")
    path = f"/image/v2/images/{made.json['id']}"

    async def status(method: str, path: str, body: object = None) -> int:
        headers = {"x-roles": roles}
        return (await region.ask(method, path, body, token="bob:blue", headers=headers)).status

    assert await status("POST", "/image/v2/images", {"name": "y"}) == 403
    assert await status("PUT", f"{path}/tags/red") == 403
    assert await status("PUT", f"{path}/file", "content") == 403
    assert await status("DELETE", path) == 403


async def test_an_entry_of_the_tokens_file_without_roles_gets_nothing(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, ENTRY).running() as region:
        paths = ("/compute/v2.1/servers", "/compute/v2.1/flavors", "/image/v2/images", "/berth/v1/clusters")
        for path in (*paths, "/identity/v3/projects", "/berth/v1/openapi.json", "/usages?project_id=blue"):
            assert (await region.ask("GET", path, token="ann-token-0123456789")).status == 403, path


async def test_roles_imply_others(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, ENTRY + 'roles = ["manager"]\n').running() as region:
        for path in ("/compute/v2.1/servers", "/image/v2/images", "/berth/v1/clusters"):
            assert (await region.ask("GET", path, token="ann-token-0123456789")).status == 200, path


async def test_an_operators_file_is_for_every_api(tmp_path: Path) -> None:
    rules = {
        "os_compute_api:servers:index": "!",
        "get_images": "!",
        "berth:clusters:list": "!",
        "identity:list_users": "!",
        "context_is_admin": "role:boss",
    }
    file = tmp_path / "policy.yaml"
    file.write_text("".join(f'"{name}": "{check}"\n' for name, check in rules.items()))

    async with RegionWorld(tmp_path, policy_file=str(file)).running() as region:
        for path in ("/compute/v2.1/servers", "/image/v2/images", "/berth/v1/clusters", "/identity/v3/users"):
            assert (await region.ask("GET", path)).status == 403, path
        services = "/compute/v2.1/os-services"
        assert (await region.ask("GET", services)).status == 403
        assert (await region.ask("GET", services, token="eve", headers={"x-roles": "boss"})).status == 200


async def test_a_rule_is_judged_for_the_project_of_what_it_is_about(tmp_path: Path) -> None:
    """Here an administrator may change its own project's images alone."""
    file = tmp_path / "policy.yaml"
    file.write_text('"modify_image": "role:admin and project_id:%(project_id)s"\n')

    async with RegionWorld(tmp_path, policy_file=str(file)).running() as region:
        for who, status in (("ann:blue", 403), ("admin:blue", 204), ("admin:red", 403)):
            made = await region.ask("POST", "/image/v2/images", {"name": "x"} | FULL, token="ann:blue")
            path = f"/image/v2/images/{made.json['id']}/tags/t"
            assert (await region.ask("PUT", path, token=who)).status == status, who


async def test_a_rule_about_projects_is_judged_for_the_project_of_the_object(tmp_path: Path) -> None:
    """Whoever was let in by such a rule saw and changed the groups of all projects."""
    names = ("list", "show", "update", "delete")
    rules = {f"berth:groups:{name}": "rule:project_member_or_admin" for name in names}
    policy = tmp_path / "policy.yaml"
    policy.write_text(json.dumps(rules))
    path = "/berth/v1/groups"

    async with RegionWorld(tmp_path, policy_file=str(policy)).running() as region:
        body = {"group": {"name": "g", "policy": "affinity"}}
        made = await region.ask("POST", path, body, token="ann:blue", headers={"x-roles": "admin"})
        group = f"{path}/{made.json['group']['uuid']}"
        asked = (
            ("GET", group, None),
            ("PATCH", group, {"group": {"name": "h"}}),
            ("POST", f"{group}/members", {"add": [uuid_of(7)]}),
            ("DELETE", group, None),
        )
        for method, where, content in asked:
            answer = await region.ask(method, where, content, token="bob:red", headers={"x-roles": "member"})
            assert (answer.status, method) == (404, method)
        listed = await region.ask("GET", path, token="bob:red", headers={"x-roles": "member"})
        assert listed.json["groups"] == []
        listed = await region.ask("GET", path, token="ann:blue", headers={"x-roles": "member"})
        assert [one["name"] for one in listed.json["groups"]] == ["g"]
