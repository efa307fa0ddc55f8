"""Which route a path belongs to, for every API."""

import pytest

from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route, Router

pytestmark = pytest.mark.fast

ROUTES = (
    Route("GET", "/", "root"),
    Route("GET", "/servers", "list"),
    Route("POST", "/servers", "create"),
    Route("GET", "/servers/detail", "list with details"),
    Route("GET", "/servers/{id}", "show"),
    Route("DELETE", "/servers/{id}", "delete"),
    Route("POST", "/servers/{id}/action", "act"),
    Route("GET", "/servers/{id}/metadata/{key}", "show a key"),
)
ROUTER = Router(ROUTES, below="/v2", part_max=8)


@pytest.mark.parametrize(
    ("method", "path", "handler", "params"),
    [
        ("GET", "/v2/", "root", ()),
        ("GET", "/v2/servers", "list", ()),
        ("POST", "/v2/servers", "create", ()),
        ("GET", "/v2/servers/detail", "list with details", ()),
        ("GET", "/v2/servers/one", "show", ("one",)),
        ("DELETE", "/v2/servers/one", "delete", ("one",)),
        # What begins like a fixed path and does not go on like one is a variable after all.
        ("POST", "/v2/servers/detail/action", "act", ("detail",)),
        ("GET", "/v2/servers/one/metadata/two", "show a key", ("one", "two")),
    ],
)
def test_a_path_has_its_route(method: str, path: str, handler: str, params: tuple[str, ...]) -> None:
    route, found, template = ROUTER.match(method, path)
    assert (route.handler, found) == (handler, params)
    assert template == f"/v2{route.path}"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v2",
        "/v1/servers",
        "/v2/servers/",
        "/v2//servers",
        "/v2/servers//action",
        "/v2/servers/one/action/more",
        "/v2/servers/ninechars",
        "/v2/others",
    ],
)
def test_a_path_without_a_route_is_not_found(path: str) -> None:
    assert ROUTER.find(path) is None
    with pytest.raises(Problem) as refused:
        ROUTER.match("GET", path)
    assert (refused.value.status, refused.value.code) == (404, "berth.not_found")
    assert path in refused.value.text


def test_another_method_is_refused_with_those_that_are_offered() -> None:
    # A fixed path takes no other method from the variable one beside it.
    for path, allow in (("/v2/servers", "GET, POST"), ("/v2/servers/detail", "GET")):
        with pytest.raises(Problem) as refused:
            ROUTER.match("DELETE", path)
        assert refused.value.status == 405
        assert refused.value.headers == (("allow", allow),)


def test_a_table_that_says_two_things_of_a_path_is_a_bug() -> None:
    for twice in (("GET", "/servers"), ("PUT", "/servers/{other}")):
        with pytest.raises(AssertionError):
            Router((*ROUTES, Route(*twice, "again")))
