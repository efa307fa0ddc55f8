"""What is written through one server is seen through another at once, a thousand times."""

import uuid
from pathlib import Path

import pytest

from tests.crash.holdings import Held
from tests.faults.fleet import fleet, rounds, seeded
from tests.faults.lines import Line, lines_to_all_workers
from tests.faults.load import claim_body, make_providers
from tests.faults.verdict import assert_all_agree, holdings_through

pytestmark = [pytest.mark.http, pytest.mark.timeout(900)]

WORKERS = 2
WRITES = 1000


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_write_through_one_server_is_seen_through_the_other_at_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = str(request.getfixturevalue(f"{kind}_url"))
    dice = seeded()
    provider, consumer = str(uuid.uuid4()), str(uuid.uuid4())
    with fleet(tmp_path, [url] * 2, "--workers", str(WORKERS)) as servers:
        here, there = (lines_to_all_workers(server, WORKERS) for server in servers)
        make_providers(here[0], [provider], {"VCPU": WRITES})
        for number in range(rounds(WRITES)):
            writer, reader = dice.choice(here), dice.choice(there)
            if number % 2:
                writer, reader = reader, writer
            claim_and_see(writer, reader, consumer, {provider: {"VCPU": number % WRITES + 1}}, number)
        for line in here + there:
            line.close()
        assert_all_agree(servers, url, WORKERS)


def claim_and_see(writer: Line, reader: Line, consumer: str, held: Held, generation: int) -> None:
    writer("PUT", f"/allocations/{consumer}", claim_body(held, generation or None))
    seen = holdings_through(reader, consumer)
    assert (seen.generation, seen.held) == (generation + 1, held)
    ((provider, amounts),) = held.items()
    assert reader("GET", f"/resource_providers/{provider}/usages")["usages"] == amounts
