"""Query strings: taken apart, checked against what the version knows, and turned into constraints.

The words of every refusal are upstream's. Whether a class, trait or aggregate exists is not asked here.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Final
from urllib.parse import unquote_to_bytes

from berth.api.kernel.problem import Problem
from berth.api.placement import schemas
from berth.api.placement.schemas import Schema, is_dashed, is_uuid, query_complaint
from berth.model.ids import AggregateId, ProviderId
from berth.model.scheduling import AnyOf

_INVALID: Final = "Invalid query string parameters: "
_LIMIT = re.compile("^[1-9][0-9]*$")
_NUMBER = re.compile(r"\s*\+?[0-9]+\s*")

PARAMETERS_MAX: Final = 1000
"""Parameters of one query, each time counted."""

NAMES_MAX: Final = 1000
"""Traits, aggregates or suffixes that one query may name, each time counted."""

CLASSES_MAX: Final = 256
"""Resource classes that one query may name, over all of its groups."""

_AMOUNT_BEYOND_ALL: Final = 2**40
"""More than any inventory can give in one piece. Larger amounts find as little; this one fits a column."""


class Query:
    """The parameters of a request, in the order they were sent; blank values are kept."""

    __slots__ = ("_all", "_last", "pairs")

    def __init__(self, query_string: str) -> None:
        self.pairs = _split(query_string) if query_string else []
        self._last = dict(self.pairs)
        self._all: dict[str, list[str]] = {}
        for name, value in self.pairs:
            self._all.setdefault(name, []).append(value)

    def get(self, name: str) -> str | None:
        """The value of a parameter; the last one counts."""
        return self._last.get(name)

    def all(self, name: str) -> list[str]:
        """Every value of a parameter, in order. Not to be written to."""
        return self._all.get(name, [])

    def as_dict(self) -> dict[str, str]:
        """Each parameter once, with its last value. Not to be written to."""
        return self._last

    def __contains__(self, name: str) -> bool:
        return name in self._last

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)


def _split(query_string: str) -> list[tuple[str, str]]:
    parts = [part for part in query_string.split("&") if part]
    if len(parts) > PARAMETERS_MAX:
        raise Problem(
            400,
            f"{_INVALID}{len(parts)} parameters were sent, at most {PARAMETERS_MAX} are allowed in one "
            "request. Ask for less at once.",
        )
    try:
        return [(_text(name), _text(value)) for name, _, value in (part.partition("=") for part in parts)]
    except UnicodeDecodeError as error:
        raise Problem(400, f"{_INVALID}{error}") from None


def _text(raw: str) -> str:
    if raw.isascii() and "%" not in raw:
        return raw.replace("+", " ")
    return unquote_to_bytes(raw.replace("+", " ").encode("latin-1")).decode("utf-8")


# -- checking -----------------------------------------------------------------------------------

Check = Callable[[str], bool]


def _anything(value: str) -> bool:
    return True


def _is_external_id(value: str) -> bool:
    return 1 <= len(value) <= schemas.NAME_LENGTH_MAX


def _is_limit(value: str) -> bool:
    return _LIMIT.match(value) is not None


def _is_group_policy(value: str) -> bool:
    return value in ("none", "isolate")


def validate(query: Query, checks: dict[str, Check], schema: Schema, required: str | None = None) -> None:
    """Refuse parameters that are unknown or malformed, in the schema's words."""
    good = required is None or required in query
    for name, value in query.as_dict().items():
        check = checks.get(name)
        if check is None or not check(value):
            good = False
            break
    if not good:
        _refuse_by(schema, query.as_dict())


def _refuse_by(schema: Schema, parameters: dict[str, str]) -> None:
    complaint = query_complaint(schema, parameters)
    if complaint is not None:
        raise Problem(400, f"{_INVALID}{complaint}")


@cache
def _provider_checks(version: int) -> dict[str, Check]:
    checks: dict[str, Check] = {"name": _anything, "uuid": is_dashed}
    for since, name, check in (
        (3, "member_of", _anything),
        (4, "resources", _anything),
        (14, "in_tree", is_dashed),
        (18, "required", _anything),
    ):
        if version >= since:
            checks[name] = check
    return checks


_TRAIT_CHECKS: Final[dict[str, Check]] = {"name": _anything, "associated": _anything}
_CONSUMER_TYPE = re.compile(schemas.CONSUMER_TYPE_QUERY_PATTERN)


def _is_consumer_type(value: str) -> bool:
    return _is_external_id(value) and _CONSUMER_TYPE.search(value) is not None


_USAGE_CHECKS: Final[dict[str, Check]] = {"project_id": _is_external_id, "user_id": _is_external_id}
_TYPED_USAGE_CHECKS: Final[dict[str, Check]] = {**_USAGE_CHECKS, "consumer_type": _is_consumer_type}


def validate_providers(query: Query, version: int) -> None:
    validate(query, _provider_checks(version), schemas.providers_query(version))


def validate_traits(query: Query) -> None:
    validate(query, _TRAIT_CHECKS, schemas.TRAITS_QUERY)


def validate_usages(query: Query, version: int) -> None:
    checks = _TYPED_USAGE_CHECKS if version >= 38 else _USAGE_CHECKS
    validate(query, checks, schemas.usages_query(version), "project_id")


@cache
def _candidate_checks(version: int) -> tuple[dict[str, Check], re.Pattern[str] | None]:
    """Checks by name, and the pattern of the names that take a suffix."""
    schema = schemas.candidates_query(version)
    special: dict[str, Check] = {"limit": _is_limit, "group_policy": _is_group_policy}
    checks: dict[str, Check] = {name: special.get(name, _anything) for name in schema["properties"]}
    patterns = schema.get("patternProperties")
    return checks, re.compile("|".join(patterns)) if patterns else None


def validate_candidates(query: Query, version: int) -> None:
    """The parameters of GET /allocation_candidates."""
    checks, pattern = _candidate_checks(version)
    good = pattern is not None or "resources" in query
    for name, value in query.as_dict().items():
        check = checks.get(name)
        if check is None:
            good = good and pattern is not None and pattern.search(name) is not None
        else:
            good = good and check(value)
    if not good:
        _refuse_by(schemas.candidates_query(version), query.as_dict())
    # The first limit is the one that counts, and the schema has seen the last.
    for value in query.all("limit")[:1]:
        if _NUMBER.fullmatch(value) is None:
            _refuse_by(schemas.candidates_query(version), {**query.as_dict(), "limit": value})


def limit_names(what: str, values: Iterable[str], count_max: int = NAMES_MAX) -> None:
    """Refuse values that name more than one query may. Counts commas: nothing is taken apart for it."""
    count = sum(value.count(",") + 1 for value in values)
    if count > count_max:
        raise Problem(
            400,
            f"{_INVALID}Too many names in '{what}': {count} were sent, at most {count_max} are allowed in "
            "one request. Ask for less at once.",
        )


# -- values -------------------------------------------------------------------------------------


def parse_resources(value: str) -> tuple[tuple[str, int], ...]:
    """``VCPU:2,MEMORY_MB:1024``; for a class named twice the last amount counts."""
    expected = (
        "Badly formed resources parameter. Expected resources query string parameter in form: "
        "?resources=VCPU:2,MEMORY_MB:1024. Got: "
    )
    if not value.strip():
        raise Problem(400, f"{expected}empty string.")
    resources: dict[str, int] = {}
    for part in value.split(","):
        words = part.split(":")
        if len(words) != 2:
            raise Problem(400, f"{expected}{part}.")
        name, text = words
        try:
            amount = int(text)
        except ValueError:
            raise Problem(
                400, f"Requested resource {name} expected positive integer amount. Got: {text}."
            ) from None
        if amount < 1:
            raise Problem(400, f"Requested resource {name} requires amount >= 1. Got: {amount}.")
        resources[name] = min(amount, _AMOUNT_BEYOND_ALL)
    return tuple(resources.items())


Required = tuple[tuple[AnyOf, ...], frozenset[str]]
"""Traits that are required (at least one of each), and traits that are forbidden."""


def parse_required(values: list[str], version: int) -> Required:
    """The values of ``required``: before 1.39 only the last one counts."""
    required: list[AnyOf] = []
    forbidden: set[str] = set()
    for value in values if version >= 39 else values[-1:]:
        any_of, none_of = parse_traits(value, may_forbid=version >= 22, may_choose=version >= 39)
        required.extend(any_of)
        forbidden |= none_of
    return tuple(dict.fromkeys(required)), frozenset(forbidden)


def parse_traits(value: str, *, may_forbid: bool, may_choose: bool) -> Required:
    """One value of a traits parameter: ``A,!B`` or ``in:A,B``."""
    if value.startswith("in:"):
        return (_parse_any_of(value, may_choose),), frozenset()
    names = [name.strip() for name in value.split(",")]
    forbidden = frozenset(name.lstrip("!") for name in names if name.startswith("!"))
    form = "HW_CPU_X86_VMX,!CUSTOM_MAGIC" if may_forbid else "HW_CPU_X86_VMX,CUSTOM_MAGIC"
    expected = f"{_INVALID}Expected 'required' parameter value of the form: {form}."
    if not all(names) or "" in forbidden:
        raise Problem(400, f"{expected} Got an empty trait in: {value}")
    if forbidden and not may_forbid:
        raise Problem(400, f"{expected} Got: {value}")
    return tuple((name,) for name in names if not name.startswith("!")), forbidden


def _parse_any_of(value: str, may_choose: bool) -> AnyOf:
    form = "in:HW_CPU_X86_VMX,CUSTOM_MAGIC"
    if not may_choose:
        raise Problem(
            400, f"{_INVALID}The format '{form}' only supported since microversion 1.39. Got: {value}"
        )
    names = [name.strip() for name in value[3:].split(",")]
    if not all(names):
        raise Problem(
            400,
            f"{_INVALID}Expected 'required' parameter value of the form: {form}. "
            f"Got an empty trait in: {value}",
        )
    if any(name.startswith("!") for name in names):
        raise Problem(400, f"{_INVALID}The format '{form}' does not support forbidden traits. Got: {value}")
    return tuple(dict.fromkeys(names))


MemberOf = tuple[tuple[tuple[AggregateId, ...], ...], frozenset[AggregateId]]
"""Aggregates to be in (at least one of each), and aggregates not to be in."""


def parse_member_of(values: list[str], version: int, suffix: str = "") -> MemberOf:
    """The values of ``member_of``: more than one from 1.24, forbidden ones from 1.32."""
    if version < 24 and len(values) > 1:
        raise Problem(400, f"Multiple member_of{suffix} parameters are not supported")
    required: list[tuple[AggregateId, ...]] = []
    forbidden: set[AggregateId] = set()
    for value in values:
        is_forbidden, aggregates = _parse_aggregates(value)
        if not is_forbidden:
            required.append(aggregates)
            continue
        if version < 32:
            raise Problem(
                400, f"Forbidden member_of{suffix} parameters are not supported in the specified microversion"
            )
        forbidden.update(aggregates)
    return tuple(dict.fromkeys(required)), frozenset(forbidden)


def _parse_aggregates(value: str) -> tuple[bool, tuple[AggregateId, ...]]:
    is_forbidden = value.startswith("!")
    rest = value[1:] if is_forbidden else value
    if rest.startswith("in:"):
        names = rest[3:].split(",")
    elif "," in value:
        raise Problem(
            400,
            "Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' keyword "
            f"using the valid microversion. Got: {value}",
        )
    else:
        names = [rest]
    for name in names:
        if not is_uuid(name):
            raise Problem(
                400, f"{_INVALID}Expected 'member_of' parameter to contain valid UUID(s). Got: {name}"
            )
    return is_forbidden, tuple(AggregateId(name) for name in dict.fromkeys(names))


def parse_in_tree(value: str) -> ProviderId:
    stripped = value.strip()
    if not is_uuid(stripped):
        raise Problem(400, f"{_INVALID}Expected 'in_tree' parameter to be a format of uuid. Got: {value}")
    return ProviderId(stripped)
