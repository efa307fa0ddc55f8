"""Key pairs: they belong to users, are made or imported, and reach the driver with a server."""

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_public_key

from tests.worlds import CIRROS, HttpAnswer, RegionWorld

pytestmark = pytest.mark.fast

PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBbGnNzZBm0kqoBuHyL9uIwm3tVDsqNGrZEPYA4NqqZz ann@laptop"
ANN = "ann:blue"


async def create(region: RegionWorld, name: str = "laptop", **how: Any) -> HttpAnswer:
    version, who = how.pop("version", "2.94"), how.pop("who", ANN)
    body = {"keypair": {"name": name, **how}}
    return await region.compute("POST", "/os-keypairs", body, who=who, version=version)


async def names(region: RegionWorld, query: str = "", **how: Any) -> list[str]:
    answer = await region.compute("GET", f"/os-keypairs{query}", **how)
    assert answer.status == 200, answer.body
    return [row["keypair"]["name"] for row in answer.json["keypairs"]]


async def test_a_public_key_is_imported_listed_shown_and_deleted(region: RegionWorld) -> None:
    made = await create(region, public_key=PUBLIC_KEY)
    assert made.status == 201
    assert made.json["keypair"] == {
        "name": "laptop",
        "public_key": PUBLIC_KEY,
        "fingerprint": made.json["keypair"]["fingerprint"],
        "type": "ssh",
        "user_id": "ann",
    }
    assert len(made.json["keypair"]["fingerprint"].split(":")) == 16
    assert (await create(region, public_key=PUBLIC_KEY)).status == 409
    assert await names(region, who=ANN) == ["laptop"]
    # It is the user's, in whatever project, and nobody else's.
    assert await names(region, who="ann:green") == ["laptop"]
    assert await names(region, who="bob:blue") == []
    shown = (await region.compute("GET", "/os-keypairs/laptop", who=ANN)).json["keypair"]
    assert (shown["id"], shown["deleted"], shown["user_id"]) == (1, False, "ann")
    assert (await region.compute("GET", "/os-keypairs/laptop", who="bob:blue")).status == 404
    assert (await region.compute("DELETE", "/os-keypairs/laptop", who=ANN)).status == 204
    assert (await region.compute("DELETE", "/os-keypairs/laptop", who=ANN)).status == 404


async def test_a_key_pair_is_made_and_its_private_key_is_told_once(region: RegionWorld) -> None:
    made = await create(region, version="2.1")
    assert made.status == 200
    pair = made.json["keypair"]
    private = load_pem_private_key(pair["private_key"].encode(), None)
    assert private.public_key() == load_ssh_public_key(pair["public_key"].encode())
    shown = (await region.compute("GET", "/os-keypairs/laptop", who=ANN, version="2.1")).json["keypair"]
    assert ("private_key" in shown, "type" in shown) == (False, False)
    certificate = (await create(region, "windows", type="x509", version="2.2")).json["keypair"]
    assert certificate["public_key"].startswith("-----BEGIN CERTIFICATE-----")
    assert len(certificate["fingerprint"].split(":")) == 20
    refused = await create(region, "late")
    assert (refused.status, "public_key is required" in refused.json["badRequest"]["message"]) == (400, True)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"public_key": "ssh-rsa JUNK nova@ubuntu"}, "Keypair data is invalid"),
        ({"public_key": "ssh-rsa"}, "a key type, and the key in base64"),
        ({"public_key": PUBLIC_KEY.replace("ed25519", "dss")}, "not a key of the type ssh-dss"),
        ({"public_key": PUBLIC_KEY, "type": "x509"}, "Keypair data is invalid"),
        ({"public_key": PUBLIC_KEY, "name": "a/b"}, "name is 'a/b'"),
        ({"public_key": PUBLIC_KEY, "name": " a"}, "name is ' a'"),
        ({"public_key": "x" * 20_000}, "public_key"),
        ({"public_key": PUBLIC_KEY, "colour": "red"}, "colour"),
    ],
)
async def test_what_is_refused(region: RegionWorld, fields: dict[str, Any], words: str) -> None:
    answer = await create(region, fields.pop("name", "k"), **fields)
    assert answer.status == 400
    assert words in answer.json["badRequest"]["message"]
    assert await names(region, who=ANN) == []


async def test_the_key_pairs_of_others_are_for_administrators(region: RegionWorld) -> None:
    assert (await create(region, public_key=PUBLIC_KEY, user_id="bob")).status == 403
    assert (await create(region, public_key=PUBLIC_KEY, user_id="bob", who="admin")).status == 201
    assert await names(region, "?user_id=bob") == ["laptop"]
    assert (await region.compute("GET", "/os-keypairs?user_id=bob", who=ANN)).status == 403
    assert (await region.compute("DELETE", "/os-keypairs/laptop?user_id=bob", who=ANN)).status == 403
    assert (await region.compute("DELETE", "/os-keypairs/laptop?user_id=bob")).status == 204


async def test_a_user_has_as_many_as_the_quota_says_and_they_come_in_pages(tmp_path: Path) -> None:
    async with RegionWorld(tmp_path, quota_key_pairs=3).running() as region:
        made = [await create(region, f"k{number}", public_key=PUBLIC_KEY) for number in range(4)]
        assert [answer.status for answer in made] == [201, 201, 201, 403]
        page = (await region.compute("GET", "/os-keypairs?limit=2", who=ANN)).json
        assert [row["keypair"]["name"] for row in page["keypairs"]] == ["k0", "k1"]
        assert "marker=k1" in page["keypairs_links"][0]["href"]
        assert await names(region, "?limit=2&marker=k1", who=ANN) == ["k2"]
        old = await region.compute("GET", "/os-keypairs?limit=2", who=ANN, version="2.34")
        assert old.status == 400


async def test_a_server_keeps_a_copy_of_its_key_and_its_driver_gets_it(region: RegionWorld) -> None:
    await region.fleet()
    await create(region, public_key=PUBLIC_KEY)
    id = await region.create(key_name="laptop", who=ANN, imageRef=CIRROS.id)
    assert region.saga_run(id).spec.guest.public_key == PUBLIC_KEY
    await region.finish(id)
    await region.compute("DELETE", "/os-keypairs/laptop", who=ANN)
    assert (await region.server(id))["key_name"] == "laptop"
    other = PUBLIC_KEY.replace("ann@laptop", "other")
    await create(region, "other", public_key=other)
    rebuilt = await region.act(id, "rebuild", {"imageRef": CIRROS.id, "key_name": "other"}, who=ANN)
    assert rebuilt.json["server"]["key_name"] == "other"
    assert region.saga_run(id).spec.guest.public_key == other
    await region.finish(id)
    assert (await region.act(id, "rebuild", {"imageRef": CIRROS.id, "key_name": None}, who=ANN)).status == 202
    assert region.saga_run(id).spec.guest.public_key is None
