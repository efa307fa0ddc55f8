"""What was asked for by a request is found by its id, whoever did it."""

from typing import Any

from berth.sim.cloud import SimCloud

GLOBAL = "req-01234567-89ab-cdef-0123-456789abcdef"
HEADERS = {"x-auth-token": "admin", "openstack-api-version": "compute 2.94"}


async def test_what_a_conductor_changes_is_found_by_the_request_for_the_server() -> None:
    async with SimCloud(seed=3, hosts=2).running() as cloud:
        client = cloud.client(HEADERS | {"x-openstack-request-id": GLOBAL})
        flavor = {"flavor": {"name": "f", "vcpus": 1, "ram": 512, "disk": 1, "id": "f"}}
        assert (await client.ask("POST", "/compute/v2.1/flavors", flavor)).status == 200
        body = {"server": {"name": "s", "flavorRef": "f", "networks": "none"}}
        answer = await client.ask("POST", "/compute/v2.1/servers", body)
        assert answer.status == 202, answer
        id, request_id = answer.body["server"]["id"], answer.headers["x-openstack-request-id"]
        await cloud.at_rest(id)
        assert (await client.ask("DELETE", f"/compute/v2.1/servers/{id}")).status == 204
        await cloud.all_at_rest()

        async def find(query: str) -> list[Any]:
            found = await cloud.client(HEADERS).ask("GET", f"/berth/v1/events?{query}")
            assert found.status == 200, found
            return list(found.body["events"])

        created, *progress = await find(f"request_id={request_id}")
        assert created["global_request_id"] == GLOBAL
        # What the cell has done since is found by the same id, up to its end.
        assert {event["action"] for event in progress} == {"status-sync"}
        states = [
            change["after"]["state"]
            for event in progress
            for change in event["changes"]
            if change["kind"] == "server"
        ]
        assert states[-1] == "active"
        deleted = [event for event in await find(f"request_id={GLOBAL}") if "DELETE" in event["action"]]
        [asked] = deleted
        released = await find(f"request_id={asked['request_id']}&kind=consumer")
        assert [change["consumer"] for event in released for change in event["changes"]] == [id]
        assert {event["global_request_id"] for event in released} == {asked["request_id"]}
