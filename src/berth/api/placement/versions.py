"""Microversions: which one a request speaks, and how a response says so.

Inside, a version is its minor number: 1.39 is 39. The major number has been 1 since the beginning.
"""

from typing import Final

from berth.api.kernel.problem import Problem

LATEST: Final = 39
SERVICE: Final = "placement"
HEADER: Final = "openstack-api-version"

MIN_TEXT: Final = "1.0"
MAX_TEXT: Final = f"1.{LATEST}"

_KNOWN: Final[dict[str | None, int]] = {
    None: 0,
    f"{SERVICE} latest": LATEST,
    **{f"{SERVICE} 1.{minor}": minor for minor in range(LATEST + 1)},
}

VERSION_HEADER: Final = tuple((HEADER, f"{SERVICE} 1.{minor}") for minor in range(LATEST + 1))
VARY_HEADER: Final = ("vary", HEADER)


def negotiate(header: str | None) -> int:
    """The version a request asks for. No header, or one for other services only, asks for the oldest."""
    known = _KNOWN.get(header)
    if known is not None:
        return known
    text = _own_part(header or "")
    if text is None:
        return 0
    if text == "latest":
        return LATEST
    major, minor = _parse(text)
    if major != 1 or not 0 <= minor <= LATEST:
        raise Problem(406, f"Invalid microversion: Unacceptable version header: {text}")
    return minor


def _own_part(header: str) -> str | None:
    """What the header says for this service; the last word counts."""
    for part in reversed(header.split(",")):
        words = part.split(None, 1)
        if len(words) == 2 and words[0].lower() == SERVICE:
            return words[1].strip()
    return None


def _parse(text: str) -> tuple[int, int]:
    try:
        numbers = [int(word) for word in text.split(".", 1)]
    except ValueError as error:
        raise _malformed(text, str(error)) from None
    if len(numbers) != 2:
        raise _malformed(text, "Version.__new__() missing 1 required positional argument: 'minor'")
    return numbers[0], numbers[1]


def _malformed(text: str, why: str) -> Problem:
    return Problem(400, f"Invalid microversion: invalid version string: {text}; {why}")
