"""What a caller sends comes back in refusals: however long, deep or odd it is, that costs little."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.api.kernel.http import Request
from berth.api.kernel.problem import Problem
from berth.api.placement import schemas, wire
from berth.api.placement.error_bodies import TEXT_MAX, render, strip_tags
from berth.api.placement.versions import negotiate

pytestmark = pytest.mark.fast

A = "11111111-1111-1111-1111-111111111111"


@contextmanager
def calls_limited(count_max: int) -> Iterator[None]:
    """Fail as soon as more functions than this have been called."""
    count = 0

    def tally(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")
        if count > count_max:
            sys.setprofile(None)
            raise AssertionError(f"more than {count_max} calls")

    sys.setprofile(tally)
    try:
        yield
    finally:
        sys.setprofile(None)


# -- tags ---------------------------------------------------------------------------------------


@given(st.text(alphabet="<>bBrR!-/ \n\rx", max_size=40))
def test_tags_are_stripped_as_webob_does(text: str) -> None:
    webob = pytest.importorskip("webob.exc")
    assert strip_tags(text) == webob.strip_tags(text)


@pytest.mark.parametrize("text", ["<", "<br", "<<br", "<!--", "< >", "<br>"])
def test_stripping_is_linear(text: str) -> None:
    """A million of them take seconds if every one is compared with a million; this is a guard, not a time."""
    program = f"from berth.api.placement.error_bodies import strip_tags; strip_tags({text!r} * 1_000_000)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# -- length -------------------------------------------------------------------------------------


def bodies(problem: Problem, **headers: str) -> Iterator[bytes]:
    for accept in ("application/json", "text/html", "text/plain"):
        request = Request("PUT", "/", headers={"accept": accept, **headers})
        yield render(problem, request).body


def test_a_long_text_is_cut() -> None:
    for body in bodies(Problem(400, "why: " + "<é" * 100_000 + " the end")):
        assert b"why: " in body
        assert len(body) < 10 * TEXT_MAX


def test_the_reason_stands_though_the_value_is_cut() -> None:
    with pytest.raises(Problem) as caught:
        wire.NEW_PROVIDER[39].decode(json.dumps({"name": "<" * 10_000}).encode())
    for body in bodies(caught.value):
        assert b" is too long" in body
        assert len(body) < 10 * TEXT_MAX


def test_long_headers_are_cut() -> None:
    long = "x/" + "y" * 100_000
    for body in bodies(Problem(415, "no"), **{"content-type": long}):
        assert len(body) < 10 * TEXT_MAX
    response = render(Problem(406, "no"), Request("GET", "/", headers={"accept": long}))
    assert len(response.body) < 10 * TEXT_MAX


def test_a_long_version_is_cut() -> None:
    with pytest.raises(Problem) as caught:
        negotiate("placement " + "<" * 60_000)
    for body in bodies(caught.value):
        assert len(body) < 10 * TEXT_MAX


def every_schema() -> Iterator[schemas.Schema]:
    for version in range(40):
        yield from (schemas.claims(version), schemas.reshape(version), schemas.candidates_query(version))
        yield from (schemas.claim(version), schemas.providers_query(version))


def test_a_schema_is_never_cut() -> None:
    """The text that quotes most of a schema is the one that refuses the whole of it."""
    for schema in every_schema():
        complaint = schemas.body_complaint(schema, {"unexpected": 1})
        assert complaint is not None
        detail = json.loads(next(bodies(Problem(400, complaint))))["errors"][0]["detail"]
        assert " ".join(complaint.split()) in " ".join(detail.split())


# -- depth --------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [33, 450, 900, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_deep_bodies_are_refused(depth: int, opening: str, closing: str) -> None:
    for body in (wire.NEW_PROVIDER[39], wire.AGGREGATES_LIST, wire.CLAIMS[39]):
        with pytest.raises(Problem) as caught:
            body.decode((opening * depth + "1" + closing * depth).encode())
        assert caught.value.status == 400


def test_deep_value_where_anything_may_stand() -> None:
    nested: Any = []
    for _ in range(900):
        nested = [nested]
    claim = {
        "allocations": {},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": 1.0,
        "mappings": {"!": nested},
    }
    with pytest.raises(Problem) as caught:
        wire.CLAIM[34].decode(json.dumps(claim).encode())
    assert caught.value.text == "Malformed JSON: nested too deeply"


# -- lists whose members cannot be sorted -------------------------------------------------------


def mixed(pairs: int) -> list[int | str]:
    return [value for number in range(pairs) for value in (number, str(number))]


def test_unsortable_lists_are_not_compared_pair_by_pair() -> None:
    items = mixed(1000)
    with calls_limited(200 * len(items)):
        complaint = schemas.body_complaint(schemas.aggregates(1), items)
    assert complaint is not None


_SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, -0.0, 1.0, 1.5, "", "1"])
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=3,
)


def equal(one: Any, other: Any) -> bool:
    """JSON's equality: a number is its value, and true is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return bool(one == other)


@given(st.lists(_VALUES, max_size=4))
def test_unique_means_what_it_means_in_json(items: list[Any]) -> None:
    complaint = schemas.body_complaint({"type": "array", "uniqueItems": True}, items)
    is_unique = not any(equal(one, other) for at, one in enumerate(items) for other in items[:at])
    assert (complaint is None) == is_unique
    if complaint is not None:
        assert complaint.startswith(f"{items!r} has non-unique elements\n\nFailed validating 'uniqueItems'")
