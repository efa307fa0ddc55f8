"""An unfinished last write costs that write and no more: the server starts, and the rest is there.

The last frames of SQLite's write-ahead log are what a power cut can leave half written. A killed process
leaves the log behind as it was, so here it is damaged by hand.
"""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.replay import assert_replay_equals_server
from tests.placement import PlacementClient
from tests.servers import ServerProcess, berth, running
from tests.waiting import WITHIN_S

pytestmark = pytest.mark.crash

CLAIMS = 20


def cut(log: bytes) -> bytes:
    return log[:-100]


def garble(log: bytes) -> bytes:
    return log[:-100] + bytes(100)


def overgrow(log: bytes) -> bytes:
    return log + log[-5000:]


def make_provider(client: PlacementClient) -> str:
    provider = str(uuid.uuid4())
    client("POST", "/resource_providers", {"name": "host", "uuid": provider})
    body = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 1000}}}
    client("PUT", f"/resource_providers/{provider}/inventories", body)
    return provider


def claim(client: PlacementClient, provider: str) -> str:
    """One claim, alone, so that it is a write of its own; the consumer."""
    consumer = str(uuid.uuid4())
    body = {
        "allocations": {provider: {"resources": {"VCPU": 1}}},
        "project_id": "project",
        "user_id": "user",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    client("PUT", f"/allocations/{consumer}", body)
    return consumer


def killed_after_claims(server: ServerProcess) -> tuple[str, list[str]]:
    client = PlacementClient(server.url)
    provider = make_provider(client)
    consumers = [claim(client, provider) for _ in range(CLAIMS)]
    client.close()
    server.kill()
    return provider, consumers


@pytest.mark.parametrize(("damage", "lost"), [(cut, 1), (garble, 1), (overgrow, 0)])
def test_an_unfinished_last_write_is_not_fatal(
    tmp_path: Path, damage: Callable[[bytes], bytes], lost: int
) -> None:
    database = tmp_path / "berth.db"
    server = berth(tmp_path, database=database)
    with running(server):
        provider, consumers = killed_after_claims(server)
        log = database.with_name(database.name + "-wal")
        log.write_bytes(damage(log.read_bytes()))
        server.start()
        client = PlacementClient(server.url)
        rows = client("GET", f"/resource_providers/{provider}/allocations")["allocations"]
        assert set(rows) == set(consumers[: CLAIMS - lost])
        assert_replay_equals_server(database, server.url)
        # And it goes on from there.
        consumer = claim(client, provider)
        rows = client("GET", f"/resource_providers/{provider}/allocations")["allocations"]
        assert set(rows) == {*consumers[: CLAIMS - lost], consumer}
        client.close()
        assert server.stop(WITHIN_S) == 0
    assert server.complaints() == []
