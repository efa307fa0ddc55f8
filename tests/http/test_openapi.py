"""A running server against its own description: generated requests, good and bad, and every answer judged."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CheckFunction
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from berth.api.native.routes import PREFIX, ROUTES
from tests.servers import ServerProcess, berth, running

pytestmark = pytest.mark.http

EXAMPLES, EXAMPLES_WITHOUT_BODY = (300, 300) if os.environ.get("BERTH_SOAK") else (30, 10)
"""Of good requests, and of bad ones, for each operation: the same in each run. Without a body there are few
parameters, and little to try."""
TOKEN = {"X-Auth-Token": "only-one-token-is-known"}
TOKENS = """
[[token]]
token = "only-one-token-is-known"
user = "admin"
project = "admin"
roles = ["admin"]
"""
INDEX = 4
"""Where the journal ends once it is filled."""
PROVIDER = "5a8f6d1e-4c1b-4c57-9d2b-0f1c2d3e4f50"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory: Path = tmp_path_factory.mktemp("openapi")
    tokens = directory / "tokens.toml"
    tokens.touch(mode=0o600)
    tokens.write_text(TOKENS)
    with running(berth(directory, "--auth", "tokens", "--tokens-file", str(tokens))) as server:
        fill(server)
        yield server


@pytest.fixture(scope="module")
def schema(server: ServerProcess) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_url(f"{server.url}/berth/v1/openapi.json", headers=TOKEN)


def fill(server: ServerProcess) -> None:
    """Something of everything, so that answers are not all empty."""
    headers = {**TOKEN, "openstack-api-version": "placement 1.39"}
    with httpx.Client(base_url=server.url, headers=headers) as client:
        for method, path, body in (
            ("POST", "/resource_providers", {"name": "host", "uuid": PROVIDER}),
            (
                "PUT",
                f"/resource_providers/{PROVIDER}/inventories",
                {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}},
            ),
            (
                "PUT",
                f"/resource_providers/{PROVIDER}/aggregates",
                {"resource_provider_generation": 1, "aggregates": [PROVIDER]},
            ),
            (
                "PUT",
                f"/allocations/{PROVIDER}",
                {
                    "allocations": {PROVIDER: {"resources": {"VCPU": 1}}},
                    "project_id": "p",
                    "user_id": "u",
                    "consumer_generation": None,
                    "consumer_type": "INSTANCE",
                },
            ),
        ):
            assert client.request(method, path, json=body).is_success


OPERATIONS = tuple((route.method, PREFIX + route.path) for route in ROUTES)

FRAMING = frozenset(("connection", "content-length", "expect", "host", "te", "transfer-encoding", "upgrade"))
"""Headers that are between the client and the HTTP server: nonsense in them never becomes a request."""


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_the_server_does_what_it_says(
    server: ServerProcess, schema: schemathesis.BaseSchema, method: str, path: str, mode: GenerationMode
) -> None:
    operation = schema[path][method]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES if method in ("PATCH", "POST", "PUT") else EXAMPLES_WITHOUT_BODY,
        phases=[Phase.generate],
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def judge(case: schemathesis.Case[Any]) -> None:
        assume(not any(map(_is_not_http, case.headers.values())))
        assume(not FRAMING.intersection(name.lower() for name in case.headers))
        # A stream has no end; tests/http/test_native.py listens to some.
        if case.query.get("stream") == "true":
            case.query["stream"] = "false"
        if mode is GenerationMode.POSITIVE:
            _bring_down_to_earth(case.query)
        # What is wrong with a generated request can be lost on its way into a URL (a list of one value is
        # that value). That bad parameters are refused is tested in tests/unit/native/test_refusals.py.
        lost: list[CheckFunction] = [] if mode is GenerationMode.POSITIVE else [negative_data_rejection]
        if method != "GET":
            # What no schema can say: which aggregates there are, and which parts of a rule go together.
            lost.append(positive_data_acceptance)
        case.call_and_validate(base_url=server.url, headers=TOKEN, excluded_checks=lost, timeout=10)

    judge()


def _is_not_http(value: object) -> bool:
    """Such a header is refused by the server's parser, before there is a request."""
    return any(ord(character) < 32 or ord(character) == 127 for character in str(value))


def _bring_down_to_earth(query: dict[str, object]) -> None:
    """What no schema can say: where the journal ends, which classes, kinds, domains, cells and drivers there
    are, what is a time, and that one goes backwards only from the newest."""
    after = query.get("after")
    if isinstance(after, int) and after > INDEX:
        query["after"] = after % (INDEX + 1)
    if query.get("resource_class"):
        query["resource_class"] = "VCPU"
    if "kind" in query:
        query["kind"] = "server"
    for name in ("domain", "cell", "driver"):
        query.pop(name, None)
    for name in query.keys() & {"since", "until"}:
        query[name] = "2026-01-31T09:30:00Z"
    if "before" in query:
        query["newest"] = "true"
