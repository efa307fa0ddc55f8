"""``networks: [{port: ID}]``: what a port needs is read from the configured source, at create and before each
move; without an answer nothing is claimed."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth.api.kernel.ports import PortSource, PortSourceError
from berth.api.kernel.problem import Problem
from berth.ledger import decide
from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.rejections import PortInUse, Rejection
from berth.model.servers import Need, Server
from berth.runtime.settings import Settings, SettingsError, conflicts, resolve
from berth.view import View
from tests.keystone import PASSWORD
from tests.keystone import running as running_keystone
from tests.ports import Broken, FakePorts, serving
from tests.worlds import SMALL, RegionWorld, propose_before_writing, uuid_of

pytestmark = pytest.mark.fast

BANDWIDTH = "NET_BW_EGR_KILOBIT_PER_SEC"
PACKETS = "NET_PACKET_RATE_KILOPACKET_PER_SEC"
PORT, OTHER = uuid_of(901), uuid_of(902)
GROUP, SECOND = uuid_of(911), uuid_of(912)


@contextlib.asynccontextmanager
async def region_with(path: Path, **settings: Any) -> AsyncIterator[RegionWorld]:
    """Three hosts, each with a network card."""
    async with RegionWorld(path, **settings).running() as region:
        await region.fleet()
        for number in range(1, 4):
            await region.host(10 + number, {BANDWIDTH: 1000, PACKETS: 1000}, parent=number)
        yield region


@pytest.fixture
async def ports() -> FakePorts:
    ports = FakePorts()
    ports.add(PORT)
    ports.request(PORT, (GROUP, {BANDWIDTH: 400}, []), (SECOND, {PACKETS: 100}, []), together=True)
    ports.add(OTHER, resource_request={"resources": {BANDWIDTH: 100}, "required": []})
    return ports


@pytest.fixture
async def region(tmp_path: Path, ports: FakePorts) -> AsyncIterator[RegionWorld]:
    with serving(ports) as url:
        async with region_with(tmp_path, port_source_url=url, port_source_timeout_seconds=1) as region:
            yield region


def body(*ids: str, **fields: Any) -> dict[str, Any]:
    networks = [{"port": id} for id in ids]
    return {"server": {"name": "one", "flavorRef": SMALL.id, "networks": networks, **fields}}


async def on_cards(region: RegionWorld, id: str) -> dict[str, int]:
    """What a server holds on the network card of its host."""
    place = region.record(id).place
    assert place is not None
    held: dict[str, int] = (await region.held(id)).get(f"host-1{place.name.removeprefix('host-')}", {})
    return held


async def made(region: RegionWorld, *ids: str) -> str:
    id = await region.create(networks=[{"port": port} for port in ids])
    await region.finish(id)
    return id


# -- create -------------------------------------------------------------------------------------


async def test_what_a_port_needs_is_claimed_with_the_server(region: RegionWorld) -> None:
    id = await region.create(networks=[{"port": PORT.upper()}, {"port": OTHER}])
    assert await on_cards(region, id) == {BANDWIDTH: 500, PACKETS: 100}
    first, second = (await region.server(id))["berth:needs"]
    card = next(iter(second["allocations"]))
    assert (first["name"], first["port"], first["same_subtree"]) == (f"port-{PORT}", PORT, [GROUP, SECOND])
    assert [(group["name"], group["allocations"]) for group in first["groups"]] == [
        (GROUP, {card: {BANDWIDTH: 400}}),
        (SECOND, {card: {PACKETS: 100}}),
    ]
    assert (second["resources"], second["groups"]) == ({BANDWIDTH: 100}, [])
    assert region.saga_run(id).spec.ports == (PORT, OTHER)


async def test_a_port_that_needs_nothing_is_remembered(region: RegionWorld, ports: FakePorts) -> None:
    ports.ports[PORT]["resource_request"] = None
    id = await made(region, PORT)
    assert await on_cards(region, id) == {}
    [need] = region.record(id).needs
    assert (need.port, need.parts) == (PORT, ())
    ports.request(PORT, (GROUP, {BANDWIDTH: 70}, []))
    assert (await region.act(id, "migrate")).status == 202
    await region.finish(id)
    assert await on_cards(region, id) == {BANDWIDTH: 70}


@pytest.mark.parametrize(
    ("networks", "words"),
    [
        ([{"port": PORT}, {"uuid": OTHER}], "unknown field `uuid` - at `$.networks[1]`"),
        ([{"port": PORT, "fixed_ip": "10.0.0.1"}], "fixed_ip"),
        ([{"port": "x"}], "port"),
        ([{"port": PORT}, {"port": PORT.upper()}], f"names port {PORT} more than once"),
        ([{"port": uuid_of(number)} for number in range(17)], "length <= 16"),
        ([{"uuid": OTHER}], "there are no networks"),
    ],
)
async def test_wrong_networks_are_refused_by_name(
    region: RegionWorld, ports: FakePorts, networks: Any, words: str
) -> None:
    answer = await region.compute("POST", "/servers", body(networks=networks))
    assert answer.status == 400
    assert words in answer.json["badRequest"]["message"]
    assert ports.asked == []


async def test_a_port_is_for_one_server(region: RegionWorld, ports: FakePorts) -> None:
    answer = await region.compute("POST", "/servers", body(PORT, max_count=2))
    assert (answer.status, "max_count is 2" in answer.json["badRequest"]["message"]) == (400, True)
    await region.create(networks=[{"port": PORT}])
    answer = await region.compute("POST", "/servers", body(PORT))
    assert answer.status == 409
    assert answer.json["conflictingRequest"]["message"] == f"Port {PORT} is in use by another server."
    ports.ports[OTHER]["device_id"] = uuid_of(77)
    assert (await region.compute("POST", "/servers", body(OTHER))).status == 409
    assert len(list(region.engine.view.records.all(Server))) == 1


async def test_a_port_is_of_one_server_when_two_are_proposed_before_either_is_written(
    region: RegionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in two processes: the one that loses the race has its command judged again, not proposed again."""
    proposed = propose_before_writing(region.engine, 2, monkeypatch)
    ask = region.compute("POST", "/servers", body(PORT)), region.compute("POST", "/servers", body(PORT))
    answers = await asyncio.gather(*ask)
    assert all(isinstance(command, Enact) for command in proposed)
    assert sorted(answer.status for answer in answers) == [202, 409]
    [refused] = (answer for answer in answers if answer.status == 409)
    assert refused.json["conflictingRequest"]["message"] == f"Port {PORT} is in use by another server."
    [server] = region.engine.view.records.all(Server)
    assert [need.port for need in server.needs] == [PORT]


def with_ports(id: str, *ports: str) -> Server:
    needs = tuple(Need(f"port-{port}", {}, port=port) for port in ports)
    return Server(id=id, name=id, project="p", user="u", flavor=SMALL, needs=(Need("other", {}), *needs))


def test_no_change_gives_a_port_to_a_second_server() -> None:
    view = View()

    def carry_out(*changes: RecordChanged) -> Rejection | None:
        verdict = decide(view, Enact(changes), 0)
        if isinstance(verdict, Rejection):
            return verdict
        for event in verdict:
            view.apply(event)
        return None

    first, second = with_ports("a", PORT), with_ports("b", PORT)
    assert carry_out(RecordChanged(None, first), RecordChanged(None, second)) == PortInUse(PORT)
    assert carry_out(RecordChanged(None, first)) is None
    assert carry_out(RecordChanged(None, second)) == PortInUse(PORT)
    other = with_ports("b", OTHER)
    assert carry_out(RecordChanged(None, other)) is None
    assert carry_out(RecordChanged(other, with_ports("b", OTHER, PORT))) == PortInUse(PORT)
    # Servers that have had one port since an older release can be changed, and one of them deleted.
    view.apply(RecordChanged(other, second))
    renamed = msgspec.structs.replace(second, name="renamed")
    assert carry_out(RecordChanged(second, renamed)) is None
    assert carry_out(RecordChanged(first, None)) is None
    assert carry_out(RecordChanged(None, first)) == PortInUse(PORT)
    assert carry_out(RecordChanged(renamed, None)) is None
    assert carry_out(RecordChanged(None, first)) is None


async def test_a_port_that_is_not_there_or_of_another_project(region: RegionWorld, ports: FakePorts) -> None:
    ports.add(OTHER, project="red")
    for id in (OTHER, uuid_of(999)):
        answer = await region.compute("POST", "/servers", body(PORT, id))
        assert answer.status == 400
        assert answer.json["badRequest"]["message"] == f"Port {id} could not be found."
    assert not list(region.engine.view.records.all(Server))


async def test_a_port_that_takes_a_device_must_ask_for_one(region: RegionWorld, ports: FakePorts) -> None:
    ports.ports[PORT]["binding:vnic_type"] = "direct"
    answer = await region.compute("POST", "/servers", body(PORT))
    assert answer.status == 409
    assert "binding:vnic_type direct" in answer.json["conflictingRequest"]["message"]
    await region.host(21, {"SRIOV_NET_VF": 4}, parent=1)
    ports.request(PORT, (GROUP, {"SRIOV_NET_VF": 1}, []))
    id = await region.create(networks=[{"port": PORT}])
    assert (await region.held(id))["host-21"] == {"SRIOV_NET_VF": 1}


@pytest.mark.parametrize(
    ("policy", "status"), [("required", "ERROR"), ("legacy", "BUILD"), (None, "BUILD"), ("close", None)]
)
async def test_a_port_says_how_near_to_the_server_its_device_is(
    region: RegionWorld, ports: FakePorts, policy: str | None, status: str | None
) -> None:
    """No host has NUMA cells: a device that must be near one does not fit."""
    await region.host(21, {"SRIOV_NET_VF": 4}, parent=1)
    ports.request(PORT, (GROUP, {"SRIOV_NET_VF": 1}, []))
    ports.ports[PORT]["numa_affinity_policy"] = policy
    answer = await region.compute("POST", "/servers", body(PORT))
    if status is None:
        assert answer.status == 503
        return
    assert answer.status == 202
    shown = await region.compute("GET", f"/servers/{answer.json['server']['id']}")
    assert shown.json["server"]["status"] == status


async def test_names_that_do_not_exist_and_the_name_of_a_need_that_is_taken(
    region: RegionWorld, ports: FakePorts
) -> None:
    ports.request(PORT, (GROUP, {BANDWIDTH: 1}, ["CUSTOM_PHYSNET_NONE"]))
    answer = await region.compute("POST", "/servers", body(PORT))
    assert answer.status == 400
    assert answer.json["badRequest"]["message"] == "There is no trait CUSTOM_PHYSNET_NONE."
    need = {"name": f"port-{OTHER}", "resources": {BANDWIDTH: 1}}
    answer = await region.compute("POST", "/servers", body(OTHER, **{"berth:needs": [need]}))
    assert (answer.status, "the need of a port" in answer.json["badRequest"]["message"]) == (400, True)


async def test_a_fault_names_the_port_that_fits_nowhere(region: RegionWorld, ports: FakePorts) -> None:
    ports.request(PORT, (GROUP, {BANDWIDTH: 400}, []), (SECOND, {PACKETS: 2000}, []))
    id = await region.create(networks=[{"port": PORT}])
    assert await region.held(id) == {}
    fault = (await region.server(id))["fault"]["message"]
    assert f"for the group {SECOND} of the need port-{PORT}: 0 hosts left" in fault


async def test_without_a_source_a_port_is_refused_as_before(tmp_path: Path) -> None:
    async with region_with(tmp_path) as region:
        answer = await region.compute("POST", "/servers", body(PORT))
        assert answer.status == 400
        message = answer.json["badRequest"]["message"]
        assert "it must be auto, none or left out: there are no networks" in message
        assert "port_source_url" in message


# -- the source is away -------------------------------------------------------------------------

AWAY: list[tuple[int | None, Broken | None]] = [
    *((status, None) for status in (400, 401, 403, 409, 418, 429, 500, 503)),
    (None, "cut"),
    (None, "garbage"),
    (None, "not json"),
    (None, "not utf-8"),
    (None, "deep"),
    (None, "huge"),
    (None, "another port"),
    (None, "redirect"),
    (None, "no port"),
]


@pytest.mark.parametrize(("status", "broken"), AWAY)
async def test_a_source_that_is_away_or_talks_nonsense_is_503_and_nothing_is_claimed(
    region: RegionWorld, ports: FakePorts, status: int | None, broken: Broken | None
) -> None:
    id = await made(region, OTHER)
    before = region.engine.view.index
    ports.status, ports.broken = status, broken
    for answer in (await region.compute("POST", "/servers", body(PORT)), await region.act(id, "migrate")):
        assert answer.status == 503
        assert answer.headers["retry-after"] == "5"
        message = answer.json["serviceUnavailable"]["message"]
        assert "cannot be read: the port source is not available. Nothing was claimed." in message
        assert "127.0.0.1" not in message
    assert region.engine.view.index == before, "nothing was recorded"
    assert all("elsewhere" not in path for path, _ in ports.asked), "a redirect is not followed"
    ports.status, ports.broken = None, None
    assert (await region.act(id, "migrate")).status == 202


async def test_a_source_that_hangs_is_given_up_at_the_deadline(region: RegionWorld, ports: FakePorts) -> None:
    ports.latency_s = 2.5
    answer = await region.compute("POST", "/servers", body(PORT))
    assert answer.status == 503
    assert not list(region.engine.view.records.all(Server))


async def test_a_source_that_is_not_there(tmp_path: Path, ports: FakePorts) -> None:
    with serving(ports) as url:
        pass
    async with region_with(tmp_path, port_source_url=url, port_source_timeout_seconds=1) as region:
        assert (await region.compute("POST", "/servers", body(PORT))).status == 503


async def test_a_passing_failure_is_tried_again(region: RegionWorld, ports: FakePorts) -> None:
    ports.broken = "cut once"
    await region.create(networks=[{"port": PORT}])
    assert len(ports.asked) == 2


@pytest.mark.parametrize(
    "request_",
    [
        {"request_groups": [{"id": GROUP, "resources": {}}]},
        {"request_groups": [{"id": GROUP, "resources": {BANDWIDTH: 0}}]},
        {"request_groups": [{"id": GROUP, "resources": {BANDWIDTH: 1 << 70}}]},
        {"request_groups": [{"id": "a b", "resources": {BANDWIDTH: 1}}]},
        {"request_groups": [{"id": str(n), "resources": {BANDWIDTH: 1}} for n in range(9)]},
        {"request_groups": [{"id": GROUP, "resources": {BANDWIDTH: 1}}] * 2},
        {"request_groups": [{"id": GROUP, "resources": {BANDWIDTH: 1}}], "same_subtree": ["x"]},
        {"resources": {BANDWIDTH: "1"}},
        [],
    ],
)
async def test_a_request_that_is_none_is_503(region: RegionWorld, ports: FakePorts, request_: Any) -> None:
    ports.ports[PORT]["resource_request"] = request_
    assert (await region.compute("POST", "/servers", body(PORT))).status == 503
    assert not list(region.engine.view.records.all(Server))


async def test_several_ports_are_read_at_once_with_a_bound(tmp_path: Path, ports: FakePorts) -> None:
    ids = [ports.add(uuid_of(920 + number)) for number in range(16)]
    ports.latency_s = 0.05
    with serving(ports) as url:
        source = PortSource(Settings(port_source_url=url))
        found = await source.read(ids * 3)
        await source.close()
    assert [port.id for port in found if port is not None] == ids * 3
    assert 1 < ports.most_at_once <= 16


async def test_no_more_ports_wait_than_there_is_room_for(ports: FakePorts) -> None:
    with serving(ports) as url:
        source = PortSource(Settings(port_source_url=url))
        with pytest.raises(Problem, match="Too many ports are being read") as caught:
            await source.read([PORT] * 257)
        await source.close()
    assert (caught.value.status, ports.asked) == (503, [])


# -- moves --------------------------------------------------------------------------------------


async def test_a_port_is_read_again_before_each_move(region: RegionWorld, ports: FakePorts) -> None:
    id = await made(region, PORT)
    assert await on_cards(region, id) == {BANDWIDTH: 400, PACKETS: 100}
    wanted = 400
    for action, body_ in (("migrate", None), ("resize", {"flavorRef": "2"}), ("os-migrateLive", LIVE)):
        wanted += 10
        ports.request(PORT, (GROUP, {BANDWIDTH: wanted}, []))
        assert (await region.act(id, action, body_)).status == 202
        await region.finish(id)
        assert await on_cards(region, id) == {BANDWIDTH: wanted}, action
        if action != "os-migrateLive":
            assert (await region.act(id, "confirmResize")).status == 204
            await region.finish(id)
            assert await on_cards(region, id) == {BANDWIDTH: wanted}
    ports.request(PORT, (GROUP, {BANDWIDTH: 7}, []))
    assert (await region.act(id, "shelve")).status == 202
    await region.finish(id)
    assert await region.held(id) == {}
    assert (await region.act(id, "unshelve")).status == 202
    await region.finish(id)
    assert await on_cards(region, id) == {BANDWIDTH: 7}
    ports.request(PORT, (GROUP, {BANDWIDTH: 8}, []))
    place = region.record(id).place
    assert place is not None
    await region.host_status(int(place.name.removeprefix("host-")), down=True)
    assert (await region.act(id, "evacuate", {})).status == 200
    await region.finish(id)
    assert await on_cards(region, id) == {BANDWIDTH: 8}


LIVE = {"host": None, "block_migration": "auto"}


async def test_a_revert_goes_back_to_what_the_port_had_there(region: RegionWorld, ports: FakePorts) -> None:
    id = await made(region, PORT)
    ports.request(PORT, (GROUP, {BANDWIDTH: 900}, []))
    assert (await region.act(id, "migrate")).status == 202
    await region.finish(id)
    assert (await region.act(id, "revertResize")).status == 202
    await region.finish(id)
    assert await on_cards(region, id) == {BANDWIDTH: 400, PACKETS: 100}
    [need] = region.record(id).needs
    assert [group.name for group in need.groups] == [GROUP, SECOND]


async def test_a_port_that_is_gone_stops_a_move_until_its_need_is_deleted(
    region: RegionWorld, ports: FakePorts
) -> None:
    id = await made(region, PORT)
    del ports.ports[PORT]
    before = region.engine.view.index
    answer = await region.act(id, "migrate")
    assert answer.status == 409
    message = answer.json["conflictingRequest"]["message"]
    assert f"Port {PORT} of server {id} could not be found." in message
    assert region.engine.view.index == before
    await region.change("DELETE", f"/berth/v1/servers/{id}/needs/port-{PORT}")
    assert (await region.act(id, "migrate")).status == 202


async def test_a_port_that_does_not_fit_any_more_is_named(region: RegionWorld, ports: FakePorts) -> None:
    id = await made(region, PORT)
    ports.request(PORT, (GROUP, {BANDWIDTH: 5000}, []))
    answer = await region.act(id, "migrate")
    assert answer.status == 400
    assert f"for the group {GROUP} of the need port-{PORT}" in answer.json["badRequest"]["message"]
    assert await on_cards(region, id) == {BANDWIDTH: 400, PACKETS: 100}


async def test_a_server_with_ports_is_not_moved_without_a_source(tmp_path: Path, ports: FakePorts) -> None:
    with serving(ports) as url:
        async with region_with(tmp_path, port_source_url=url) as region:
            id = await made(region, PORT)
    async with RegionWorld(tmp_path).running() as region:
        answer = await region.act(id, "migrate")
        assert answer.status == 503
        assert "port_source_url is not set" in answer.json["serviceUnavailable"]["message"]


async def test_other_operations_ask_no_source(region: RegionWorld, ports: FakePorts) -> None:
    id = await made(region, PORT)
    ports.status = 500
    for action in ("os-stop", "os-start"):
        assert (await region.act(id, action)).status == 202
        await region.finish(id)
    assert (await region.compute("DELETE", f"/servers/{id}")).status == 204
    assert len(ports.asked) == 1


async def test_a_member_can_use_a_port_of_its_project(region: RegionWorld, ports: FakePorts) -> None:
    ports.add(OTHER, project="blue")
    ports.request(OTHER, (GROUP, {BANDWIDTH: 5}, []))
    id = await region.create(networks=[{"port": OTHER}], who="ann:blue")
    assert await on_cards(region, id) == {BANDWIDTH: 5}
    assert (await region.compute("POST", "/servers", body(PORT), who="ann:blue")).status == 400


async def test_ports_of_a_busy_server_are_read_too(region: RegionWorld, ports: FakePorts) -> None:
    id = await region.create(networks=[{"port": PORT}])
    answer = await region.act(id, "migrate")
    assert (answer.status, "spawning" in answer.json["conflictingRequest"]["message"]) == (409, True)
    ports.status = 500
    assert (await region.act(id, "migrate")).status == 503


# -- what is sent, and what is told -------------------------------------------------------------


async def test_headers_come_from_a_file_that_can_change_and_are_never_told(
    tmp_path: Path, ports: FakePorts, caplog: pytest.LogCaptureFixture
) -> None:
    headers = tmp_path / "headers"
    headers.write_text("# for Neutron\nX-Auth-Token: first-secret\n\nX-Roles: reader\n")
    headers.chmod(0o600)
    with serving(ports) as url:
        source = PortSource(Settings(port_source_url=url, port_source_headers_file=str(headers)))
        await source.read([PORT])
        headers.write_text("X-Auth-Token: second-secret\n")
        ports.status = 403
        with caplog.at_level(logging.DEBUG), pytest.raises(Exception, match="cannot be read") as caught:
            await source.read([PORT])
        headers.chmod(0o644)
        with caplog.at_level(logging.DEBUG), pytest.raises(Exception, match="cannot be read"):
            await source.read([PORT])
        await source.close()
    (_, first), (path, second) = ports.asked
    assert path == f"/v2.0/ports/{PORT}"
    assert (first["x-auth-token"], first["x-roles"]) == ("first-secret", "reader")
    assert second["x-auth-token"] == "second-secret"
    assert "x-roles" not in second
    told = caplog.text + str(caught.value)
    assert "it refuses Berth's credentials with 403" in told
    assert "it can be used by others than its owner" in told
    assert "secret" not in told


async def test_without_a_file_berths_own_user_in_keystone_asks(ports: FakePorts) -> None:
    ports.token = "service-token-1"
    with running_keystone() as keystone, serving(ports) as url:
        settings = Settings(
            port_source_url=url,
            auth="keystone",
            keystone_auth_url=keystone.url,
            keystone_username="berth",
            keystone_password=PASSWORD,
            keystone_project_name="service",
        )
        source = PortSource(settings)
        await source.read([PORT])
        ports.token = "service-token-2"
        [port] = await source.read([PORT])
        await source.close()
    assert port is not None
    assert keystone.logins == 2, "a token that is refused is replaced, once"


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("X-Auth-Token: secret\n", 0o640, "can be used by others"),
        ("X-Auth-Token secret\n", 0o600, "line 1: NAME: VALUE is expected"),
        ("# \nX Auth: secret\n", 0o600, "line 2"),
        ("X-Auth: secret\x01\n", 0o600, "line 1"),
        (f"X-Auth: {'x' * 70_000}\n", 0o600, "more than 65536 bytes"),
    ],
)
def test_a_file_of_headers_that_cannot_be_used_ends_the_start(
    tmp_path: Path, text: str, mode: int, words: str
) -> None:
    file = tmp_path / "headers"
    file.write_text(text)
    file.chmod(mode)
    settings = Settings(port_source_url="http://n/{port}", port_source_headers_file=str(file))
    with pytest.raises(PortSourceError, match=words) as caught:
        PortSource(settings)
    assert "secret" not in str(caught.value)


def test_a_ca_file_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    for file, words in ((tmp_path / "none.pem", "No such file"), (tmp_path / "empty.pem", "certificates")):
        (tmp_path / "empty.pem").write_text("no certificate")
        settings = Settings(port_source_url="https://n/{port}", port_source_cafile=str(file))
        with pytest.raises(PortSourceError, match=f"{file}: cannot read the certificates") as caught:
            PortSource(settings)
        assert words in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "neutron/{port}",
        "ftp://n/{port}",
        "http://n/",
        "http://n/{port}/{port}",
        "http://u:p@n/{port}",
        "http://n/{port}?token=secret",
        "http://n/{port}#x",
        "http://n/{id}/{port}",
        "http://n",
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="port_source_url"):
        resolve(flags={"port_source_url": url})


def test_settings_of_a_source_that_is_not_set_are_refused() -> None:
    wrong = conflicts(Settings(port_source_headers_file="/etc/berth/headers"))
    assert wrong == "port_source_headers_file: it has no meaning without port_source_url"
