"""Query strings: taken apart as browsers and clients put them together, refused in upstream's words."""

from collections.abc import Callable

import pytest

from berth.api.kernel.problem import Problem
from berth.api.placement import query as q
from berth.api.placement import schemas
from berth.api.placement.query import Query

pytestmark = pytest.mark.fast

A = "11111111-1111-1111-1111-111111111111"
B = "22222222-2222-2222-2222-222222222222"


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", []),
        ("a=1&b=2", [("a", "1"), ("b", "2")]),
        ("a=&b", [("a", ""), ("b", "")]),
        ("a=1&&a=2&", [("a", "1"), ("a", "2")]),
        ("a=b%20c+d&e%5B=%C3%A9", [("a", "b c d"), ("e[", "é")]),
        ("a=b=c", [("a", "b=c")]),
        ("a=\u00c3\u00a9", [("a", "é")]),
        ("a=%zz", [("a", "%zz")]),
    ],
)
def test_a_query_is_taken_apart_into_pairs(text: str, pairs: list[tuple[str, str]]) -> None:
    assert Query(text).pairs == pairs


def test_the_last_value_of_a_parameter_counts() -> None:
    query = Query("a=1&b=2&a=3")
    assert query.get("a") == "3"
    assert query.all("a") == ["1", "3"]
    assert query.get("c") is None


def test_a_query_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(Problem, match=r"Invalid query string parameters: 'utf-8' codec can't decode"):
        Query("name=%ff")


PROVIDER_QUERIES = [
    "",
    "name=a",
    f"uuid={A}",
    f"uuid={A.upper()}",
    f"uuid={A.replace('-', '')}",
    "uuid=x",
    f"in_tree={A}",
    "in_tree=x",
    "member_of=x",
    "resources=",
    "required=A&required=B",
    "other=1",
]
USAGE_QUERIES = [
    "",
    "project_id=p",
    "project_id=",
    "user_id=u",
    "project_id=p&user_id=",
    "project_id=p&user_id=u&x=1",
    *(
        f"project_id=p&consumer_type={value}"
        for value in ("A", "a", "all", "allx", "unknown", "unknownx", "")
    ),
]
CANDIDATE_QUERIES = [
    "",
    "resources=VCPU:1",
    *(f"resources=VCPU:1&limit={value}" for value in ("1", "0", "-1", "a", "", "10")),
    *(f"resources=VCPU:1&group_policy={value}" for value in ("none", "isolate", "bogus", "")),
    *(
        f"resources=VCPU:1&{name}=x"
        for name in ("required", "member_of", "in_tree", "root_required", "same_subtree")
    ),
    *(f"resources{suffix}=VCPU:1" for suffix in ("1", "0", "01", "_A", "a" * 64, "a" * 65, "@", "1@")),
    *(f"{name}1=x" for name in ("required", "member_of", "in_tree", "root_required", "limit")),
    "resources=VCPU:1&other=1",
]


@pytest.mark.parametrize("version", range(40))
def test_fast_checks_agree_with_the_schemas(version: int) -> None:
    for text in PROVIDER_QUERIES:
        agrees(text, lambda query: q.validate_providers(query, version), schemas.providers_query(version))
    for text in USAGE_QUERIES:
        agrees(text, lambda query: q.validate_usages(query, version), schemas.usages_query(version))
    for text in CANDIDATE_QUERIES:
        agrees(text, lambda query: q.validate_candidates(query, version), schemas.candidates_query(version))
    for text in ("", "name=a", "associated=b", "other=c"):
        agrees(text, q.validate_traits, schemas.TRAITS_QUERY)


def agrees(text: str, check: Callable[[Query], None], schema: schemas.Schema) -> None:
    query = Query(text)
    complaint = schemas.query_complaint(schema, query.as_dict())
    if complaint is None:
        check(query)
        return
    with pytest.raises(Problem) as caught:
        check(query)
    assert caught.value.text == f"Invalid query string parameters: {complaint}"


def test_resources_are_read_and_the_last_amount_counts() -> None:
    assert q.parse_resources("VCPU:2,DISK_GB:10,VCPU:3") == (("VCPU", 3), ("DISK_GB", 10))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", "Got: empty string."),
        (" ", "Got: empty string."),
        ("VCPU", "Got: VCPU."),
        ("VCPU:1:2", "Got: VCPU:1:2."),
        ("VCPU:a", "Requested resource VCPU expected positive integer amount. Got: a."),
        ("VCPU:0", "Requested resource VCPU requires amount >= 1. Got: 0."),
        ("VCPU:" + "9" * 5000, "expected positive integer amount"),
    ],
)
def test_bad_resources_are_refused(value: str, text: str) -> None:
    with pytest.raises(Problem) as caught:
        q.parse_resources(value)
    assert text in caught.value.text


def test_amount_beyond_a_column_is_kept_within() -> None:
    assert q.parse_resources("VCPU:" + "9" * 40)[0][1] < 2**62


def test_required_and_forbidden_traits_are_read() -> None:
    assert q.parse_required(["A,!B", "C"], 22) == ((("C",),), frozenset())
    assert q.parse_required(["A, !B"], 22) == ((("A",),), frozenset({"B"}))
    assert q.parse_required(["in:A,B", "C,!D"], 39) == ((("A", "B"), ("C",)), frozenset({"D"}))
    assert q.parse_required([], 39) == ((), frozenset())


@pytest.mark.parametrize(
    ("value", "version", "text"),
    [
        ("A,", 18, "of the form: HW_CPU_X86_VMX,CUSTOM_MAGIC. Got an empty trait in: A,"),
        ("A,!", 22, "of the form: HW_CPU_X86_VMX,!CUSTOM_MAGIC. Got an empty trait in: A,!"),
        ("!A", 21, "of the form: HW_CPU_X86_VMX,CUSTOM_MAGIC. Got: !A"),
        ("in:A", 38, "The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' only supported since microversion 1.39."),
        ("in:A,!B", 39, "does not support forbidden traits. Got: in:A,!B"),
        ("in:A,,B", 39, "Got an empty trait in: in:A,,B"),
    ],
)
def test_bad_required_traits_are_refused(value: str, version: int, text: str) -> None:
    with pytest.raises(Problem) as caught:
        q.parse_required([value], version)
    assert caught.value.text.startswith("Invalid query string parameters: ")
    assert text in caught.value.text


def test_member_of_is_read() -> None:
    assert q.parse_member_of([A], 3) == (((A,),), frozenset())
    assert q.parse_member_of([f"in:{A},{B}", B], 24) == (((A, B), (B,)), frozenset())
    assert q.parse_member_of([f"!{A}", f"!in:{A},{B}"], 32) == ((), frozenset({A, B}))


@pytest.mark.parametrize(
    ("values", "version", "text"),
    [
        ([A, B], 23, "Multiple member_of1 parameters are not supported"),
        ([f"!{A}"], 31, "Forbidden member_of1 parameters are not supported in the specified microversion"),
        (
            [f"{A},{B}"],
            39,
            "Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' keyword",
        ),
        (["x"], 39, "Expected 'member_of' parameter to contain valid UUID(s). Got: x"),
        (["in:"], 39, "Expected 'member_of' parameter to contain valid UUID(s). Got: "),
    ],
)
def test_a_bad_member_of_is_refused(values: list[str], version: int, text: str) -> None:
    with pytest.raises(Problem) as caught:
        q.parse_member_of(values, version, "1")
    assert text in caught.value.text


def test_in_tree_must_be_a_uuid() -> None:
    assert q.parse_in_tree(f" {A} ") == A
    with pytest.raises(Problem, match="Expected 'in_tree' parameter to be a format of uuid"):
        q.parse_in_tree("x")
