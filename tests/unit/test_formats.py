"""What is written in journals, snapshots and messages to agents is known, and known since when.

``tests/golden/formats.txt`` lists all of it. Lines of formats that are released do not change: a program of
an older release would read what it cannot understand.
"""

import hashlib
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from berth.cell import protocol
from berth.model.events import AnyRecord
from berth.model.formats import ADDED, FORMAT, Additions, structs_within
from tools.formats import list_formats

GOLDEN = Path(__file__).parents[1] / "golden" / "formats.txt"
RELEASED = {
    "journal 1": "809151d1213d81a4",
    "agent 1": "14054f06f552944a",
    "agent 2": "33527da835be25f7",
    "agent 3": "6241aed593c8651a",
}
"""Digests of the lines of formats, and of versions of the agent protocol, that programs out there write."""
HOW = (
    "Something that is written has changed. If it is new: declare in berth.model.formats.ADDED (or in "
    "berth.cell.protocol.ADDED) since which format it is there, a format that is not released yet, and write "
    "the list again: python -m tools.formats > tests/golden/formats.txt. If it was there before: older "
    "programs cannot read it, so add something new beside it. See docs/decisions/039."
)


def test_all_that_is_written_is_in_the_list_since_its_format() -> None:
    listed = GOLDEN.read_text().splitlines()
    assert list_formats() == listed, HOW


@pytest.mark.parametrize("name", RELEASED)
def test_what_is_released_does_not_change(name: str) -> None:
    lines = [line for line in GOLDEN.read_text().splitlines() if line.startswith(f"{name} ")]
    digest = hashlib.blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()
    assert digest == RELEASED[name], HOW


def test_nothing_is_newer_than_this_program() -> None:
    assert max(ADDED.values(), default=1) <= FORMAT
    assert max(protocol.ADDED.values()) <= protocol.VERSION


def test_every_record_says_nothing_of_a_field_at_its_default() -> None:
    """An older program reads records of a newer one, as long as those have nothing new in them."""
    kinds = list(structs_within(AnyRecord))
    assert len(kinds) > 15
    assert [kind for kind in kinds if not kind.__struct_config__.omit_defaults] == []


def test_all_fields_that_were_added_have_a_default() -> None:
    """Records from before have none of them. A word that was added is none."""
    fields = [line.split(" ", 2)[1:] for line in list_formats()]
    named = [(since, rest, rest.partition(":")[0]) for since, rest in fields]
    added = [rest for since, rest, name in named if since != "1" and "." in name and "=" not in name]
    of_added_kinds = tuple(
        f"{rest}." for since, name in fields if since != "1" for rest in [name.partition(":")[0]]
    )
    assert [
        rest for rest in added if ":" in rest and " = " not in rest and not rest.startswith(of_added_kinds)
    ] == []


# -- finding what is too new ----------------------------------------------------------------------------


class Wheel(msgspec.Struct, frozen=True):
    size: int
    tread: Literal["slick", "rain"] = "slick"


class Wing(msgspec.Struct, frozen=True):
    angle: int


class Car(msgspec.Struct, frozen=True, rename={"wheels": "tyres"}):
    name: str
    wheels: tuple[Wheel, ...] = ()
    spares: dict[str, Wheel] = {}
    wing: Wing | None = None
    driver: str = ""
    mode: str = "road"


ADDITIONS = Additions(
    {"Wing": 2, "Car.wing": 2, "Wheel.tread=rain": 3, "Car.driver": 4, "Car.mode=flight": 4, "Car.tyres": 2}
)


@pytest.mark.parametrize(
    ("car", "version", "newer"),
    [
        (Car("a"), 1, None),
        (Car("a", wheels=(Wheel(1),)), 1, "Car.tyres"),
        (Car("a", wheels=(Wheel(1),)), 2, None),
        (Car("a", wheels=(Wheel(1), Wheel(1, "rain"))), 2, "Wheel.tread=rain"),
        (Car("a", spares={"x": Wheel(1, "rain")}), 2, "Wheel.tread=rain"),
        (Car("a", spares={"x": Wheel(1, "rain")}), 3, None),
        (Car("a", wing=Wing(1)), 1, "Car.wing"),
        (Car("a", wing=Wing(1)), 2, None),
        (Car("a", driver="b"), 3, "Car.driver"),
        (Car("a", mode="flight"), 3, "Car.mode=flight"),
        (Car("a", mode="flight", driver="b"), 4, None),
    ],
)
def test_what_a_version_does_not_have_is_found_by_name(car: Car, version: int, newer: str | None) -> None:
    assert ADDITIONS.find_newer(car, version) == newer
    assert ADDITIONS.find_newer([{"in": (car,)}], version) == newer


def test_a_new_kind_is_found_where_a_field_could_always_hold_it() -> None:
    class Garage(msgspec.Struct):
        held: Wheel | Wing

    assert Additions({"Wing": 2}).find_newer(Garage(Wing(1)), 1) == "Wing"
    assert Additions({"Wing": 2}).find_newer(Garage(Wheel(1)), 1) is None
