"""Requests about groups and to the scheduler that are refused, and the words for that."""

from typing import Any, Final

from tests.worlds import uuid_of

REFUSED: Final[list[tuple[dict[str, Any], str]]] = [
    ({}, "nothing is asked for"),
    ({"resources": {"VCPU": 0}}, ">= 1"),
    ({"resources": {"VCPU": 1}, "max_count": 1001}, "<= 1000"),
    ({"resources": {"VCPU": 1}, "min_count": 3, "max_count": 2}, "min_count is 3 and max_count 2"),
    ({"resources": {"VCPU": 1}, "max_count": 2, "consumers": [uuid_of(1)]}, "1 consumer is named"),
    ({"resources": {"VCPU": 1}, "max_count": 2, "consumers": [uuid_of(1)] * 2}, "named twice"),
    ({"resources": {"VCPU": 1}, "flavor": {"vcpus": 1, "ram": 1}}, "leave out resources and parts"),
    ({"resources": {"VCPU": 1}, "image": {}}, "an image goes with a flavor"),
    ({"flavor": {"vcpus": 1, "ram": 1, "extra_specs": {"trait:X": "maybe"}}}, "trait:X is 'maybe'"),
    ({"parts": {"_A": {"resources": {"VCPU": 1}}}, "same_subtree": [["_B"]]}, "same_subtree names _B"),
    ({"token": "x", "max_count": 2}, "leave out everything beside it"),
    ({"resources": {"VCPU": 1}, "colour": "red"}, "unknown field `colour`"),
]
"""Bodies of POST /berth/v1/schedule that cannot be understood."""

REFUSED_GROUPS: Final[list[tuple[object, str]]] = [
    ({"group": {"name": "x"}}, "missing required field `policy`"),
    ({"group": {"name": "x", "policy": "close"}}, "Invalid enum value 'close'"),
    ({"group": {"name": "", "policy": "affinity"}}, "length >= 1"),
    ({"group": {"name": "x", "policy": "affinity", "colour": 1}}, "unknown field `colour`"),
    ({"group": {"name": "x", "policy": "anti-affinity", "max_per_domain": 0}}, ">= 1"),
    ({"group": {"name": "x", "policy": "affinity", "max_per_domain": 2}}, "keep members apart"),
    ({"group": {"name": "x", "policy": "anti-affinity", "max_skew": 1}}, "not for hosts"),
    ({"group": {"name": "x", "policy": "affinity", "domain": "rack"}}, "No aggregate has the kind rack"),
    ({"group": {"name": "x", "policy": "affinity", "members": ["?"]}}, "matching regex"),
    ([], "Expected `object`"),
]
"""Bodies of POST /berth/v1/groups that make no group."""
