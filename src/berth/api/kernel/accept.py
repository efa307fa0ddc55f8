"""What a client will read: the Accept header, judged as Placement judges it.

A missing header, and a bare ``*/*``, mean JSON. Of several media ranges that match a type the most
specific one gives its weight. A header that cannot be read refuses nothing.
"""

import re
from functools import lru_cache
from typing import Final, Literal

from berth.api.kernel.http import JSON

Format = Literal["html", "json", "plain"]

_RANGE = re.compile(r"\s*([\w!#$%&'*+.^`|~-]+)/([\w!#$%&'*+.^`|~-]+)\s*((?:;[^,]*)?)\Z")
_WEIGHT = re.compile(r";\s*q=(1(?:\.0{0,3})?|0(?:\.\d{0,3})?)\s*(?:;|\Z)", re.IGNORECASE)

_DISTINCT_HEADERS_MAX: Final = 256


def effective(accept: str | None) -> str:
    """The header as it counts."""
    return JSON if not accept or accept == "*/*" else accept


@lru_cache(_DISTINCT_HEADERS_MAX)
def accepts_json(accept: str) -> bool:
    ranges = _parse(accept)
    return ranges is None or _weight(ranges, "application", "json") > 0


@lru_cache(_DISTINCT_HEADERS_MAX)
def error_format(accept: str) -> Format:
    """HTML where it is as welcome as JSON, plain text where neither is welcome."""
    ranges = _parse(accept)
    if ranges is None:
        return "html"
    html, json = _weight(ranges, "text", "html"), _weight(ranges, "application", "json")
    if html == json == 0:
        return "plain"
    return "html" if html >= json else "json"


_Range = tuple[str, str, bool, float]


def _parse(accept: str) -> list[_Range] | None:
    ranges: list[_Range] = []
    for element in accept.split(","):
        if not element.strip():
            continue
        match = _RANGE.match(element)
        if match is None:
            return None
        weight = _WEIGHT.search(match[3])
        has_parameters = bool(match[3].strip(" ;")) and (weight is None or weight.start() > 0)
        ranges.append(
            (match[1].lower(), match[2].lower(), has_parameters, float(weight[1]) if weight else 1.0)
        )
    return ranges


def _weight(ranges: list[_Range], kind: str, subtype: str) -> float:
    """The weight of the most specific range that matches, 0 if none does."""
    best, weight = -1, 0.0
    for range_kind, range_subtype, has_parameters, range_weight in ranges:
        # A range with parameters (text/html;level=1) asks for more than the plain type offers.
        if has_parameters:
            continue
        if (range_kind, range_subtype) == (kind, subtype):
            specificity = 2
        elif (range_kind, range_subtype) == (kind, "*"):
            specificity = 1
        elif (range_kind, range_subtype) == ("*", "*"):
            specificity = 0
        else:
            continue
        if specificity > best:
            best, weight = specificity, range_weight
    return weight
