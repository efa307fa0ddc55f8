"""Bodies: what the fast path accepts is what the schema accepts, and refusals are in the schema's words."""

import json
from typing import Any

import pytest

from berth.api.kernel.problem import Problem
from berth.api.placement import schemas, wire
from berth.api.placement.wire import VersionedBody

pytestmark = pytest.mark.fast

A = "11111111-1111-1111-1111-111111111111"
B = "22222222-2222-2222-2222-222222222222"
BARE = A.replace("-", "")
BIG = 2**31

NAMES: list[Any] = ["", "a", "n" * 200, "n" * 201, "é" * 200, 5, None, "CUSTOM_A", "CUSTOM_", "CUSTOM_a"]
UUIDS: list[Any] = [A, A.upper(), BARE, "{" + A + "}", "urn:uuid:" + A, A[:-1], A + "0", "x", "", 7, None]
AMOUNTS: list[Any] = [0, 1, 1.0, 1.5, BIG - 1, BIG, -1, "1", True, None, 10**30, 1e300]
RATIOS: list[Any] = [1, 1.5, 0, -1, 3.40282e38, 3.40282e39, "1", None, True]
GENERATIONS: list[Any] = [0, 5, -1, 2.0, 2.5, "1", None, True, 10**25]


def resources(amount: Any = 1, name: str = "VCPU") -> dict[str, Any]:
    return {"resources": {name: amount}}


def claim(**changes: Any) -> dict[str, Any]:
    whole = {"allocations": {A: resources()}, "project_id": "p", "user_id": "u"}
    return {key: value for key, value in {**whole, **changes}.items() if value is not ...}


MAPPINGS: list[Any] = [
    {},
    {"": [A]},
    {"": 5},
    {"": []},
    {"_A": [A]},
    {"_A": [BARE]},
    {"_A": []},
    {"_A": ["x"]},
    {"_A": [5]},
    {"_A": A},
    {"!": "anything"},
    [],
    None,
]

CLAIMS: list[Any] = [
    claim(),
    claim(allocations={}),
    claim(allocations={A: {}}),
    claim(allocations={A: {"resources": {}}}),
    claim(allocations={A: {**resources(), "generation": 1}}),
    claim(allocations={A: {**resources(), "generation": None}}),
    claim(allocations={A: {**resources(), "other": 1}}),
    claim(allocations={BARE: resources()}),
    claim(allocations={"-" * 36: resources()}),
    claim(allocations={"x" * 36: resources()}),
    claim(allocations={A + "\n": resources()}),
    claim(allocations=[]),
    claim(allocations=...),
    *(claim(allocations={A: resources(amount)}) for amount in AMOUNTS),
    *(claim(allocations={A: resources(1, name)}) for name in ("VCPU", "vcpu", "", "A B", "A\n")),
    *(claim(project_id=value) for value in ("", "p" * 255, "p" * 256, 5, None, ...)),
    *(claim(user_id=value) for value in ("", "é" * 255, "é" * 256, 5, None, ...)),
    *(claim(consumer_generation=value) for value in (None, 0, 1.0, 1.5, "1", True)),
    *(claim(consumer_generation=None, mappings=value) for value in MAPPINGS),
    *(
        claim(consumer_generation=None, consumer_type=value)
        for value in ("INSTANCE", "instance", "", "A" * 255, "A" * 256, 5, None, "A\n")
    ),
    claim(consumer_generation=None, consumer_type="INSTANCE", mappings={"_A": [A]}),
    claim(extra=1),
    [],
    5,
    "text",
    None,
]


def listed(**changes: Any) -> dict[str, Any]:
    entry = {"resource_provider": {"uuid": A}, "resources": {"VCPU": 1}}
    return {key: value for key, value in {"allocations": [entry], **changes}.items() if value is not ...}


LISTED: list[Any] = [
    listed(),
    listed(project_id="p", user_id="u"),
    listed(project_id="p"),
    listed(allocations=[]),
    listed(allocations={}),
    listed(allocations=...),
    *(
        listed(allocations=[{"resource_provider": {"uuid": value}, "resources": {"VCPU": 1}}])
        for value in UUIDS
    ),
    *(
        listed(allocations=[{"resource_provider": {"uuid": A}, "resources": {"VCPU": value}}])
        for value in AMOUNTS
    ),
    listed(allocations=[{"resource_provider": {"uuid": A, "x": 1}, "resources": {"VCPU": 1}}]),
    listed(allocations=[{"resource_provider": {}, "resources": {"VCPU": 1}}]),
    listed(allocations=[{"resource_provider": {"uuid": A}}]),
]


def inventory(**changes: Any) -> dict[str, Any]:
    whole = {"total": 10, **changes}
    return {key: value for key, value in whole.items() if value is not ...}


INVENTORIES: list[Any] = [
    inventory(),
    inventory(resource_provider_generation=1),
    inventory(resource_class="VCPU"),
    inventory(resource_class="vcpu"),
    inventory(resource_class="VCPU", resource_provider_generation=1),
    inventory(resource_class="VCPU", resource_provider_generation=None),
    inventory(total=..., resource_class="VCPU"),
    inventory(extra=1, resource_class="VCPU"),
    *(
        inventory(resource_class="VCPU", **{field: value})
        for field in ("total", "reserved", "min_unit", "max_unit", "step_size")
        for value in AMOUNTS
    ),
    *(inventory(resource_class="VCPU", allocation_ratio=value) for value in RATIOS),
    *(inventory(resource_provider_generation=value) for value in GENERATIONS),
]

ALL_INVENTORIES: list[Any] = [
    {"resource_provider_generation": 1, "inventories": {}},
    {"resource_provider_generation": 1, "inventories": []},
    {"resource_provider_generation": 1},
    {"inventories": {}},
    *({"resource_provider_generation": value, "inventories": {}} for value in GENERATIONS),
    *({"resource_provider_generation": 1, "inventories": {"VCPU": record}} for record in INVENTORIES),
    {"resource_provider_generation": 1, "inventories": {"vcpu": inventory()}},
]

CASES: dict[str, tuple[VersionedBody[Any], schemas.Schema, list[Any]]] = {
    "resource class": (
        wire.RESOURCE_CLASS,
        schemas.RESOURCE_CLASS,
        [
            *({"name": name} for name in NAMES),
            {"name": "CUSTOM_" + "A" * 249},
            {},
            {"name": "CUSTOM_A", "x": 1},
        ],
    ),
    **{
        f"new provider 1.{version}": (
            wire.NEW_PROVIDER[version],
            schemas.new_provider(version),
            [
                *({"name": name} for name in NAMES),
                *({"name": "a", "uuid": value} for value in UUIDS),
                *({"name": "a", "parent_provider_uuid": value} for value in UUIDS),
                {},
                {"name": "a", "x": 1},
            ],
        )
        for version in (0, 13, 14, 39)
    },
    **{
        f"provider 1.{version}": (
            wire.CHANGED_PROVIDER[version],
            schemas.changed_provider(version),
            [
                *({"name": name} for name in NAMES),
                {"name": "a", "uuid": A},
                *({"name": "a", "parent_provider_uuid": value} for value in UUIDS),
            ],
        )
        for version in (0, 13, 14, 39)
    },
    "aggregates 1.1": (
        wire.AGGREGATES_LIST,
        schemas.aggregates(1),
        [[], [A], [A, B], [A, A], [A, A.upper()], {}, "x", *([value] for value in UUIDS)],
    ),
    "aggregates 1.19": (
        wire.AGGREGATES,
        schemas.aggregates(19),
        [
            *({"aggregates": [A], "resource_provider_generation": value} for value in GENERATIONS),
            *({"aggregates": [value], "resource_provider_generation": 1} for value in UUIDS),
            {"aggregates": [A, A], "resource_provider_generation": 1},
            {"aggregates": [A]},
            {"resource_provider_generation": 1},
            [A],
        ],
    ),
    "provider traits": (
        wire.PROVIDER_TRAITS,
        schemas.PROVIDER_TRAITS,
        [
            *(
                {"traits": [value], "resource_provider_generation": 1}
                for value in ("", "a", "a" * 255, "a" * 256, 5)
            ),
            *({"traits": [], "resource_provider_generation": value} for value in GENERATIONS),
            {"traits": []},
            {"traits": {}, "resource_provider_generation": 1},
        ],
    ),
    "new inventory": (wire.NEW_INVENTORY, schemas.NEW_INVENTORY, INVENTORIES),
    "inventory": (wire.CHANGED_INVENTORY, schemas.CHANGED_INVENTORY, INVENTORIES),
    "inventories": (wire.INVENTORIES, schemas.INVENTORIES, ALL_INVENTORIES),
    **{
        f"claim 1.{version}": (wire.LIST_CLAIM[version], schemas.claim(version), LISTED + CLAIMS)
        for version in (0, 7, 8, 11)
    },
    **{
        f"claim 1.{version}": (wire.CLAIM[version], schemas.claim(version), LISTED + CLAIMS)
        for version in (12, 27, 28, 33, 34, 37, 38, 39)
    },
    **{
        f"claims 1.{version}": (
            wire.CLAIMS[version],
            schemas.claims(version),
            [{}, [], {BARE: claim()}, {"x": claim()}, *({A: body} for body in CLAIMS)],
        )
        for version in (13, 27, 28, 33, 34, 37, 38, 39)
    },
    **{
        f"reshape 1.{version}": (
            wire.RESHAPE[version],
            schemas.reshape(version),
            [
                {},
                {"inventories": {}, "allocations": {}},
                *({"inventories": {A: body}, "allocations": {}} for body in ALL_INVENTORIES),
                *({"inventories": {A: ALL_INVENTORIES[0]}, "allocations": {B: body}} for body in CLAIMS),
                {"inventories": {BARE: ALL_INVENTORIES[0]}, "allocations": {}},
            ],
        )
        for version in (30, 33, 34, 37, 38, 39)
    },
}


@pytest.mark.parametrize("name", CASES)
def test_fast_path_agrees_with_schema(name: str) -> None:
    body, schema, samples = CASES[name]
    for sample in samples:
        complaint = schemas.body_complaint(schema, sample)
        encoded = json.dumps(sample).encode()
        if complaint is None:
            body.decode(encoded)
            continue
        with pytest.raises(Problem) as caught:
            body.decode(encoded)
        assert caught.value.status == 400
        assert caught.value.text == f"JSON does not validate: {complaint}"


def test_integral_floats_become_integers() -> None:
    claim = wire.CLAIM[28].decode(
        json.dumps(
            {
                "allocations": {A: {"resources": {"VCPU": 2.0}}},
                "project_id": "p",
                "user_id": "u",
                "consumer_generation": 3.0,
            }
        ).encode()
    )
    assert isinstance(claim, wire.GenerationClaim)
    assert claim.allocations[A].resources == {"VCPU": 2}
    assert repr(claim.consumer_generation) == "3"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "Malformed JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"{", "Malformed JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (b'{"name": "\xff"}', "Malformed JSON: 'utf-8' codec can't decode byte 0xff"),
        (b'{"name": "\\ud800"}', "Malformed JSON: 'utf-8' codec can't encode character '\\ud800'"),
        (b"[" * 100_000, "Malformed JSON: nested too deeply"),
    ],
)
def test_malformed_json_is_refused(body: bytes, text: str) -> None:
    with pytest.raises(Problem) as caught:
        wire.NEW_PROVIDER[39].decode(body)
    assert caught.value.text.startswith(text)


@pytest.mark.parametrize("ratio", [b"NaN", b"-Infinity", b"-1e400", b"-1e300"])
def test_no_ratio_beyond_arithmetic(ratio: bytes) -> None:
    with pytest.raises(Problem):
        wire.NEW_INVENTORY.decode(b'{"resource_class":"VCPU","total":1,"allocation_ratio":%s}' % ratio)


def test_integral_floats_are_taken_though_no_refusal_would_be_explained() -> None:
    names = {f"CUSTOM_{number}": {"total": 1.0} for number in range(2000)}
    body = json.dumps({"resource_provider_generation": 1, "inventories": names}).encode()
    assert wire.EXPLAINED_BYTES_MAX < len(body) < wire.REREAD_BYTES_MAX
    assert len(wire.INVENTORIES.decode(body).inventories) == 2000


def test_what_a_struct_cannot_check_is_checked_in_large_bodies_too() -> None:
    ids = [f"{A[:-4]}{number:04d}" for number in range(1000)]
    for good in (True, False):
        body = {"aggregates": ids if good else [*ids, ids[0]], "resource_provider_generation": 1.0}
        encoded = json.dumps(body).encode()
        assert wire.EXPLAINED_BYTES_MAX < len(encoded) < wire.REREAD_BYTES_MAX
        if good:
            assert wire.AGGREGATES.decode(encoded).aggregates == ids
            continue
        with pytest.raises(Problem, match="JSON does not validate: a uuid was expected, each at most once"):
            wire.AGGREGATES.decode(encoded)


@pytest.mark.parametrize("size", [wire.EXPLAINED_BYTES_MAX, wire.REREAD_BYTES_MAX])
def test_large_body_is_not_explained_at_length(size: int) -> None:
    body = json.dumps({"name": "a", "x": "y" * size}).encode()
    with pytest.raises(Problem) as caught:
        wire.NEW_PROVIDER[39].decode(body)
    assert len(caught.value.text) < 200
