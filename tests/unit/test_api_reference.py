"""The API reference is that of the program: nothing is missing in it, and nothing outlives its code."""

import re
from typing import Any

import pytest

from berth.api.native.routes import PREFIX, ROUTES
from tests.servers import ROOT
from tools.api_reference import FOLDER, describe_type, list_roles, render_pages
from tools.upstream_routes import APIS, UpstreamApi

pytestmark = pytest.mark.fast

COMPUTE = ROOT / "src" / "berth" / "api" / "compute"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return render_pages()


def test_the_pages_are_those_of_the_program(pages: dict[str, str]) -> None:
    assert {file.name for file in FOLDER.iterdir()} == pages.keys()
    for name, text in pages.items():
        assert (FOLDER / name).read_text() == text, f"{name}: run `make docs`"


def test_every_route_of_ours_is_there(pages: dict[str, str]) -> None:
    titles = re.findall("^### (.*)$", pages["berth.md"], re.MULTILINE)
    assert titles == [f"{route.method} {PREFIX}{route.path}" for route in ROUTES]


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_route_of_openstack_is_there_and_no_other(api: UpstreamApi, pages: dict[str, str]) -> None:
    assert {f"{route.method} {route.path}" for route in api.routes} == api.said.keys()
    shown = re.findall(r"^\| `([A-Z]+ /\S*)`", pages[f"{api.name}.md"], re.MULTILINE)
    assert sorted(shown) == sorted(f"{route.method} {api.prefix}{route.path}" for route in api.routes)


def test_every_struct_that_compute_reads_is_shown() -> None:
    """A handler that reads another body than the page shows is found here."""
    text = "".join(file.read_text() for file in COMPUTE.rglob("*.py"))
    read = set(re.findall(r"call\.decode\(([A-Z]\w+)\)", text))
    [compute] = [api for api in APIS if api.name == "compute"]
    shown = {about.body.__name__ for about in compute.said.values() if about.body is not None}
    # Before 2.53 a service was named in the body.
    assert read - shown == {"NamedServiceChange"}
    assert shown - read == set()


def test_links_lead_somewhere(pages: dict[str, str]) -> None:
    anchors = {
        name: {make_anchor(title) for title in re.findall("^#+ (.*)$", text, re.MULTILINE)}
        for name, text in pages.items()
    }
    for name, text in pages.items():
        for page, anchor in re.findall(r"\]\(([\w./-]*)#?([\w-]*)\)", text):
            if page.startswith("../"):
                assert (FOLDER / page).exists(), (name, page)
            elif anchor:
                assert anchor in anchors[page or name], (name, page, anchor)
            else:
                assert page in pages, (name, page)


def make_anchor(title: str) -> str:
    return re.sub("[^a-z0-9_ -]", "", title.lower()).replace(" ", "-")


def test_no_two_titles_of_a_page_have_one_anchor(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        anchors = [make_anchor(title) for title in re.findall("^#+ (.*)$", text, re.MULTILINE)]
        assert len(set(anchors)) == len(anchors), name


def test_who_may_is_what_the_policy_says() -> None:
    assert list_roles("berth:hosts:update") == ["admin", "service", "operator"]
    assert list_roles("berth:overview:show") == ["admin", "service", "operator", "auditor"]
    assert list_roles("os_compute_api:servers:create") == ["member", "manager", "admin"]
    assert list_roles("placement:reshaper:reshape") == ["service"]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 1000}, "whole number, 1 to 1,000"),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 5.5}, "number, more than 0 to 5.5"),
        ({"type": "string", "minLength": 1, "maxLength": 255}, "text, 1 to 255 characters"),
        ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, "true or false or null"),
        ({"enum": ["a", "b"]}, "`a`, `b`"),
        ({"type": "array", "items": {"$ref": "#/x/Host"}}, "list of [Host](berth-shapes.md#host)"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map to whole number"),
    ],
)
def test_a_type_is_told_in_words(schema: dict[str, Any], words: str) -> None:
    assert describe_type(schema) == words
