"""The error table is complete, and bodies read exactly as they always have."""

import json
from typing import Any

import pytest

from berth.api.kernel.codes import CONCURRENT_UPDATE, UNDEFINED
from berth.api.kernel.http import Request, Response
from berth.api.kernel.problem import Problem
from berth.api.kernel.rejections import ROWS, Attempt, placement_problem
from berth.api.placement.error_bodies import render
from berth.model import rejections as r
from berth.model.ids import AggregateId, ConsumerId, GroupId, ProviderId
from berth.model.rejections import Rejection, TreeRule

pytestmark = pytest.mark.fast

P = ProviderId("11111111-1111-1111-1111-111111111111")
C = ConsumerId("22222222-2222-2222-2222-222222222222")
G = GroupId("33333333-3333-3333-3333-333333333333")


def request(method: str = "GET", **headers: str) -> Request:
    return Request(
        method, "/x", headers={k.replace("_", "-"): v for k, v in headers.items()}, request_id="req-1"
    )


def error_of(response: Response) -> dict[str, Any]:
    [error] = json.loads(response.body)["errors"]
    assert isinstance(error, dict)
    return error


# -- bodies -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "method", "headers", "detail"),
    [
        (
            Problem(400, "why"),
            "GET",
            {},
            "The server could not comply with the request since it is either malformed or otherwise "
            "incorrect.\n\n why  ",
        ),
        (Problem(403, "why"), "GET", {}, "Access was denied to this resource.\n\n why  "),
        (Problem(404), "GET", {}, "The resource could not be found.\n\n   "),
        (
            Problem(405, "why"),
            "DELETE",
            {},
            "The method DELETE is not allowed for this resource. \n\n why",
        ),
        (
            Problem(406, "why"),
            "GET",
            {},
            "The resource could not be generated that was acceptable to your browser "
            "(content of type application/json. \n\n why",
        ),
        (
            Problem(409, "why"),
            "GET",
            {},
            "There was a conflict when trying to complete your request.\n\n why  ",
        ),
        (
            Problem(415, "why"),
            "PUT",
            {"content-type": "text/plain"},
            "The request media type text/plain is not supported by this server. \n\n why",
        ),
        (
            Problem(415, "why"),
            "PUT",
            {},
            "The request media type None is not supported by this server. \n\n why",
        ),
        (
            Problem(500, "why"),
            "GET",
            {},
            "The server has either erred or is incapable of performing the requested operation.\n\n why  ",
        ),
        (
            Problem(404, "a <b>tag</b>\nand more"),
            "GET",
            {},
            "The resource could not be found.\n\n a tag and more  ",
        ),
    ],
)
def test_the_detail_has_upstreams_shape(
    problem: Problem, method: str, headers: dict[str, str], detail: str
) -> None:
    response = render(problem, request(method, **headers))
    assert error_of(response)["detail"] == detail
    assert ("content-type", "application/json") in response.headers


def test_errors_have_a_code_from_1_23() -> None:
    problem = Problem(409, "why", CONCURRENT_UPDATE)
    assert "code" not in error_of(render(problem, request(openstack_api_version="placement 1.22")))
    assert error_of(render(problem, request(openstack_api_version="placement 1.23"))) == {
        "status": 409,
        "title": "Conflict",
        "detail": "There was a conflict when trying to complete your request.\n\n why  ",
        "code": "placement.concurrent_update",
        "request_id": "req-1",
    }
    assert (
        error_of(render(Problem(404), request(openstack_api_version="placement 1.39")))["code"]
        == "placement.undefined_code"
    )


def test_versions_are_offered_where_none_was_agreed_on() -> None:
    error = error_of(render(Problem(406, "why"), request(openstack_api_version="placement 9.9")))
    assert (error["min_version"], error["max_version"]) == ("1.0", "1.39")
    assert "code" not in error
    assert "min_version" not in error_of(
        render(Problem(406, "why"), request(openstack_api_version="placement 1.39"))
    )


def test_an_error_is_rendered_as_html() -> None:
    response = render(Problem(404, "n<b>é"), request(accept="text/html"))
    assert ("content-type", "text/html; charset=UTF-8") in response.headers
    assert response.body == (
        b"<html>\n <head>\n  <title>404 Not Found</title>\n </head>\n <body>\n  <h1>404 Not Found</h1>\n"
        b"  The resource could not be found.<br /><br />\nn&lt;b&gt;&#233;\n\n\n </body>\n</html>"
    )


def test_an_error_is_rendered_as_text() -> None:
    response = render(Problem(404), request(accept="text/plain"))
    assert ("content-type", "text/plain; charset=UTF-8") in response.headers
    assert response.body == b"404 Not Found\n\nThe resource could not be found.\n\n   "


def test_head_has_no_body() -> None:
    assert render(Problem(405), request("HEAD")).body == b""


def test_unauthorized_has_its_own_shape() -> None:
    body = json.loads(render(Problem(401), request()).body)
    assert set(body) == {"message", "code", "title"}
    assert body["message"].endswith("the credentials required.<br /><br />\n\n\n")


@pytest.mark.parametrize("accept", ["application/json", "text/html", "text/plain"])
def test_unauthorized_says_where_a_token_can_be_had(accept: str) -> None:
    def headers(challenge: str | None) -> dict[str, str]:
        sent = () if challenge is None else (("www-authenticate", challenge),)
        return dict(render(Problem(401, headers=sent), request(accept=accept)).headers)

    assert headers('Keystone uri="http://k"')["www-authenticate"] == 'Keystone uri="http://k"'
    assert "www-authenticate" not in headers(None)


def test_outside_of_the_api_the_version_is_named_if_it_is_known() -> None:
    def headers(version: str) -> dict[str, str]:
        sent = request(openstack_api_version=version)
        return dict(render(Problem(413, "too long"), sent).headers)

    known = headers("placement 1.7")
    assert (known["openstack-api-version"], known["vary"]) == ("placement 1.7", "openstack-api-version")
    assert headers("placement 9.9").keys() == {"content-type"}


# -- rejections ---------------------------------------------------------------------------------

EVERY: list[Rejection] = [
    r.ResourceClassNotFound("X"),
    r.ResourceClassExists("X"),
    r.ResourceClassInUse("X"),
    r.ResourceClassIsStandard("X"),
    r.TraitsNotFound(("X", "Y")),
    r.TraitInUse("X"),
    r.TraitIsStandard("X"),
    r.NameNotCustom("X"),
    r.ProviderNotFound(P),
    r.ProviderExists(P, "n"),
    r.ProviderNameMissing(P),
    *(r.TreeRuleBroken(P, None, rule) for rule in TreeRule),
    r.ProviderHasChildren(P),
    r.ProviderInUse(P, 3),
    r.AggregateNotForAgents(P, AggregateId("a"), "operators put hosts into it"),
    r.ProviderGenerationConflict(P, 2, 1),
    r.InventoryExists(P, "X"),
    r.InventoryNotFound(P, "X"),
    r.InventoryInUse(P, ("X", "Y")),
    r.ReservedTooHigh(P, "X", 1, 2, True),
    r.UnitsOvercommitted(P, "X", 1.5),
    r.UnitsMiscounted(P, "X", 16, 8),
    r.ConsumerGenerationConflict(C, None, 1),
    r.ConsumerClaimsTwice(C),
    r.ClaimedProviderNotFound(P),
    r.ClaimedClassNotFound(C, "X"),
    r.NoInventory(P, ("X",)),
    r.UnitsViolated(P, "X", 5, 1, 4, 1),
    r.CapacityExceeded(P, "X", 5, 3, 4, "nas"),
    r.AllocationsNotFound(C),
    r.GroupPolicyBroken(G, "db", "anti-affinity", C, "host-1", "rack-1", "it is full", ((C, "host-2"),)),
    r.GroupFull(G, 10),
    r.CommandTooLarge(1000, 4 << 20),
    r.RowTooLarge(5 << 20),
    r.FormatTooOld("Server.mood", 3, 2),
    r.ServerBusy(C, "reshape", "resizing"),
]
"""What the ledger may answer to a request of the Placement API."""


def test_every_rejection_is_in_the_table() -> None:
    assert ROWS.keys() == set(Rejection.__subclasses__())
    assert {kind for kind, row in ROWS.items() if row.placement is not None} == {type(one) for one in EVERY}


@pytest.mark.parametrize("rejection", EVERY, ids=lambda rejection: type(rejection).__name__)
def test_every_rejection_reads_on_every_route(rejection: Rejection) -> None:
    for attempt in Attempt:
        problem = placement_problem(rejection, attempt, name="n", provider=P)
        assert 400 <= problem.status < 500
        assert "{" not in problem.text


@pytest.mark.parametrize(
    ("rejection", "attempt", "status", "code", "text"),
    [
        (
            r.ProviderGenerationConflict(P, 2, 1),
            Attempt.SET_INVENTORIES,
            409,
            "placement.concurrent_update",
            "resource provider generation conflict. "
            f"Resource provider {P} is at generation 2, the request named 1: "
            "read it again and repeat the request.",
        ),
        (
            r.ConsumerGenerationConflict(C, 1, None),
            Attempt.PUT_ALLOCATIONS,
            409,
            "placement.concurrent_update",
            "consumer generation conflict - expected 1 but got None",
        ),
        (
            r.ConsumerGenerationConflict(C, None, 5),
            Attempt.POST_ALLOCATIONS,
            409,
            "placement.concurrent_update",
            "consumer generation conflict - expected null but got 5",
        ),
        (
            r.CapacityExceeded(P, "VCPU", 5, 3, 4, "nas"),
            Attempt.PUT_ALLOCATIONS,
            409,
            "placement.undefined_code",
            "Unable to allocate inventory: "
            f"Unable to create allocation for 'VCPU' on resource provider '{P}'. "
            "The requested amount would exceed the capacity. Asked for 5; others use 3 of 4 on nas.",
        ),
        (
            r.InventoryInUse(P, ("VCPU", "DISK_GB")),
            Attempt.DELETE_INVENTORIES,
            409,
            "placement.inventory.inuse",
            f"Inventory for 'VCPU, DISK_GB' on resource provider '{P}' in use.",
        ),
        (
            r.InventoryInUse(P, ("VCPU",)),
            Attempt.DELETE_INVENTORY,
            409,
            "placement.concurrent_update",
            "Unable to delete inventory of class VCPU: "
            f"Inventory for 'VCPU' on resource provider '{P}' in use.",
        ),
        (
            r.TreeRuleBroken(P, None, TreeRule.PARENT_MISSING),
            Attempt.CREATE_PROVIDER,
            400,
            "placement.undefined_code",
            f'Unable to create resource provider "n", {P}: Object action create failed because: '
            "parent provider UUID does not exist.",
        ),
        (
            r.ProviderExists(None, "n"),
            Attempt.CREATE_PROVIDER,
            409,
            "placement.duplicate_name",
            "Conflicting resource provider name: n already exists.",
        ),
    ],
)
def test_a_rejection_is_rendered_in_upstreams_words(
    rejection: Rejection, attempt: Attempt, status: int, code: str, text: str
) -> None:
    problem = placement_problem(rejection, attempt, name="n", provider=P)
    assert (problem.status, problem.code or UNDEFINED) == (status, code)
    assert problem.text.startswith(text)
