"""What a guest is given, its addresses and its tags: kept, shown at each microversion, and handed on."""

from typing import Any

import msgspec
import pytest

from berth.agent.drivers.sim import make_addresses
from berth.model.formats import ADDITIONS
from berth.model.saga_runs import Spec
from berth.model.servers import NO_GUEST, Guest
from tests.worlds import CIRROS, SMALL, RegionWorld, uuid_of

pytestmark = pytest.mark.fast


async def names(region: RegionWorld, query: str, **how: Any) -> list[str]:
    answer = await region.compute("GET", f"/servers?{query}", **how)
    assert answer.status == 200, answer.body
    return [one["name"] for one in answer.json["servers"]]


# -- addresses ----------------------------------------------------------------------------------


def test_a_simulated_server_has_the_same_addresses_wherever_it_is() -> None:
    (one, two), other = make_addresses(uuid_of(7)), make_addresses(uuid_of(8))
    assert make_addresses(uuid_of(7)) == (one, two)
    assert (one.address.startswith("10."), two.address.startswith("fd00::")) == (True, True)
    assert one.mac == two.mac
    assert one.address != other[0].address


async def test_addresses_are_shown_once_the_agent_has_reported_them(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.create()
    assert (await region.server(id))["addresses"] == {}
    await region.finish(id)
    ipv4, ipv6 = make_addresses(id)
    kinds = {"OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": ipv4.mac}
    assert (await region.server(id))["addresses"] == {
        "public": [{"addr": ipv4.address, "version": 4, **kinds}],
        "public-v6": [{"addr": ipv6.address, "version": 6, **kinds}],
    }
    plain = {
        "public": [{"addr": ipv4.address, "version": 4}],
        "public-v6": [{"addr": ipv6.address, "version": 6}],
    }
    assert (await region.compute("GET", f"/servers/{id}/ips")).json == {"addresses": plain}
    one = (await region.compute("GET", f"/servers/{id}/ips/public")).json
    assert one == {"public": plain["public"]}
    assert (await region.compute("GET", f"/servers/{id}/ips/private")).status == 404


async def test_servers_are_found_by_a_part_of_their_address(region: RegionWorld) -> None:
    await region.fleet()
    ids = {name: await region.active(name) for name in ("one", "two")}
    ipv4, ipv6 = make_addresses(ids["one"])
    assert await names(region, f"ip=^{ipv4.address.replace('.', '[.]')}$") == ["one"]
    assert await names(region, f"ip6={ipv6.address}") == ["one"]
    assert sorted(await names(region, "ip=^10[.]")) == ["one", "two"]
    assert await names(region, "ip=^fd") == []


# -- what a guest is given ----------------------------------------------------------------------


async def test_what_a_guest_is_given_reaches_its_driver(region: RegionWorld) -> None:
    await region.fleet()
    given = {
        "user_data": "eA==",
        "config_drive": "True",
        "hostname": "web",
        "OS-DCF:diskConfig": "AUTO",
        "accessIPv4": "192.0.2.1",
        "accessIPv6": "::192.0.2.1",
    }
    id = await region.create(imageRef=CIRROS.id, **given)
    guest = region.saga_run(id).spec.guest
    assert (guest.user_data, guest.has_config_drive, guest.hostname) == ("eA==", True, "web")
    assert guest.partitions_disk
    await region.finish(id)
    shown = await region.server(id)
    assert (shown["config_drive"], shown["OS-DCF:diskConfig"]) == ("True", "AUTO")
    assert (shown["accessIPv4"], shown["accessIPv6"]) == ("192.0.2.1", "::c000:201")
    assert shown["OS-EXT-SRV-ATTR:user_data"] == "eA=="
    assert shown["OS-EXT-SRV-ATTR:hostname"] == "web"
    changes = {"accessIPv4": "", "hostname": "web2", "OS-DCF:diskConfig": "MANUAL"}
    await region.compute("PUT", f"/servers/{id}", {"server": changes})
    shown = await region.server(id)
    assert (shown["accessIPv4"], shown["OS-EXT-SRV-ATTR:hostname"]) == ("", "web2")
    rebuilt = await region.act(id, "rebuild", {"imageRef": CIRROS.id, "user_data": "eQ=="})
    assert rebuilt.json["server"]["user_data"] == "eQ=="
    assert region.saga_run(id).spec.guest.user_data == "eQ=="


async def test_an_answer_to_a_change_had_fewer_fields_once(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(imageRef=CIRROS.id)
    body = {"server": {"name": "new"}}
    old = (await region.compute("PUT", f"/servers/{id}", body, version="2.74")).json["server"]
    new = (await region.compute("PUT", f"/servers/{id}", body, version="2.75")).json["server"]
    assert {"OS-EXT-STS:vm_state", "key_name", "OS-EXT-SRV-ATTR:host"} <= new.keys() - old.keys()
    assert list(old["addresses"]["public"][0]) == ["addr", "version"]
    rebuilt = await region.act(id, "rebuild", {"imageRef": CIRROS.id, "adminPass": "mine"}, version="2.1")
    assert rebuilt.json["server"]["adminPass"] == "mine"
    assert "OS-EXT-STS:vm_state" not in rebuilt.json["server"]


async def test_a_host_name_has_its_domain_with_it_from_2_94_on(region: RegionWorld) -> None:
    await region.fleet()
    asked = {"server": {"name": "a", "flavorRef": "1", "hostname": "web.example.org"}}
    assert (await region.compute("POST", "/servers", asked, version="2.93")).status == 400
    assert (await region.compute("POST", "/servers", asked, version="2.89")).status == 400
    assert (await region.compute("POST", "/servers", asked)).status == 202


# -- tags ---------------------------------------------------------------------------------------


async def test_tags_are_added_replaced_found_and_removed(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(tags=["a", "b", "a"])
    await region.active("two", tags=["b"])
    path = f"/servers/{id}/tags"
    assert (await region.compute("GET", path)).json == {"tags": ["a", "b"]}
    assert [(await region.compute("PUT", f"{path}/c")).status for _ in range(2)] == [201, 204]
    assert [(await region.compute("GET", f"{path}/{tag}")).status for tag in "cd"] == [204, 404]
    for query, found in (
        ("tags=a,b", ["one"]),
        ("tags-any=a,b", ["one", "two"]),
        ("not-tags=a,b", ["two"]),
        ("not-tags-any=a,c", ["two"]),
    ):
        assert sorted(await names(region, query)) == found
    assert (await region.compute("GET", "/servers?tags=a", version="2.25")).status == 400
    assert [(await region.compute("DELETE", f"{path}/a")).status for _ in range(2)] == [204, 404]
    assert (await region.compute("PUT", path, {"tags": ["x", "y"]})).json == {"tags": ["x", "y"]}
    assert (await region.server(id))["tags"] == ["x", "y"]
    assert (await region.compute("DELETE", path)).status == 204
    assert (await region.compute("GET", path)).json == {"tags": []}
    assert (await region.compute("GET", path, version="2.25")).status == 404


async def test_tags_have_limits(region: RegionWorld) -> None:
    await region.fleet()
    id = await region.active(tags=[str(number) for number in range(50)])
    path = f"/servers/{id}/tags"
    assert (await region.compute("PUT", f"{path}/more")).status == 400
    assert (await region.compute("PUT", f"{path}/{'x' * 61}")).status == 400
    assert (await region.compute("PUT", path, {"tags": ["a/b"]})).status == 400


# -- lists --------------------------------------------------------------------------------------


async def test_lists_come_in_the_order_that_is_asked_for_page_by_page(region: RegionWorld) -> None:
    await region.fleet()
    for name, note in (("b", "x"), ("a", "y"), ("c", "x")):
        await region.active(name, description=note)
    assert await names(region, "sort_key=display_name&sort_dir=asc") == ["a", "b", "c"]
    assert await names(region, "sort_key=display_name") == ["c", "b", "a"]
    order = "sort_key=display_description&sort_dir=desc&sort_key=display_name&sort_dir=asc"
    assert await names(region, order) == ["a", "b", "c"]
    page = (await region.compute("GET", f"/servers?{order}&limit=2")).json
    assert [one["name"] for one in page["servers"]] == ["a", "b"]
    link = page["servers_links"][0]["href"].partition("?")[2]
    assert await names(region, link) == ["c"]
    assert (await region.compute("GET", "/servers?sort_key=host", who="ann:blue")).status == 403


async def test_a_server_whose_guest_is_given_nothing_says_nothing_of_it(region: RegionWorld) -> None:
    """Programs and agents of the release before know no guests: nothing of one may be written for them."""
    await region.fleet()
    id = await region.create(config_drive=False)
    assert region.record(id).guest is NO_GUEST
    assert ADDITIONS.find_newer(Spec("", "", "", SMALL), 1) is None
    assert ADDITIONS.find_newer(Spec("", "", "", SMALL, guest=Guest(user_data="eA==")), 1) == "Spec.guest"
    assert b"guest" not in msgspec.json.encode(region.record(id))
