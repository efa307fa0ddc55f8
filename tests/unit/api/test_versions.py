"""Microversion negotiation, header by header."""

import pytest

from berth.api.kernel.problem import Problem
from berth.api.placement.versions import LATEST, negotiate

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("header", "version"),
    [
        (None, 0),
        ("", 0),
        ("placement 1.0", 0),
        ("placement 1.39", 39),
        ("placement latest", LATEST),
        ("Placement   1.17 ", 17),
        ("compute 2.1", 0),
        ("compute 2.1, placement 1.5", 5),
        ("placement 1.5,compute 2.1", 5),
        ("placement 1.5, placement 1.6", 6),
        ("placement", 0),
        ("1.5", 0),
    ],
)
def test_a_header_selects_a_version(header: str | None, version: int) -> None:
    assert negotiate(header) == version


@pytest.mark.parametrize(
    ("header", "status", "text"),
    [
        ("placement 0.5", 406, "Invalid microversion: Unacceptable version header: 0.5"),
        ("placement 1.40", 406, "Invalid microversion: Unacceptable version header: 1.40"),
        ("placement 2.0", 406, "Invalid microversion: Unacceptable version header: 2.0"),
        (
            "placement 1.2.3",
            400,
            "Invalid microversion: invalid version string: 1.2.3; "
            "invalid literal for int() with base 10: '2.3'",
        ),
        (
            "placement LATEST",
            400,
            "Invalid microversion: invalid version string: LATEST; "
            "invalid literal for int() with base 10: 'LATEST'",
        ),
        (
            "placement 1",
            400,
            "Invalid microversion: invalid version string: 1; "
            "Version.__new__() missing 1 required positional argument: 'minor'",
        ),
    ],
)
def test_a_bad_version_is_refused(header: str, status: int, text: str) -> None:
    with pytest.raises(Problem) as caught:
        negotiate(header)
    assert (caught.value.status, caught.value.text) == (status, text)
