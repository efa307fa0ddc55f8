"""The options of a scheduler: its filters and weighers, and how many hosts and candidates a plan may try."""

import math
from collections.abc import Iterable
from typing import Final

import msgspec

from berth.scheduler.plugins import Filter, Weigher, WrongOption, filters, weighers

DEFAULT_FILTERS: Final = (
    "enabled",
    "host_state",
    "cell",
    "zone",
    "aggregate_metadata",
    "project_isolation",
    "trait_isolation",
    "architecture",
    "hypervisor_type",
    "image_isolation",
    "ignored",
    "host_names",
    "same_host",
    "different_host",
    "group_policy",
)
"""In the order in which an explanation names them. The order changes no answer."""

DEFAULT_WEIGHERS: Final = (
    "cpu=1.0",
    "memory=1.0",
    "disk=1.0",
    "soft_affinity=2.0",
    "spread=2.0",
    "build_failures=100.0",
)
"""Spread over the fleet; soft group policies count for more; a host on which builds failed is taken last."""

MULTIPLIER_MAX: Final = 1e9
SUBSET_SIZE_MAX: Final = 10_000
HOSTS_TRIED_MAX: Final = 1_000
CANDIDATES_TRIED_MAX: Final = 200


class SchedulerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``subset_size``: the choice is made at random among the best that many hosts, and those that are as
    good as the last of them. ``hosts_tried_max``: after how many hosts without success a plan gives up.
    ``candidates_tried_max``: how many candidates on one host are put to the ledger before it is given up."""

    filters: tuple[Filter, ...]
    weighers: tuple[tuple[Weigher, float], ...]
    subset_size: int = 1
    hosts_tried_max: int = HOSTS_TRIED_MAX
    candidates_tried_max: int = CANDIDATES_TRIED_MAX


def scheduler_options(
    filter_names: Iterable[str] = DEFAULT_FILTERS,
    weigher_settings: Iterable[str] = DEFAULT_WEIGHERS,
    subset_size: int = 1,
    hosts_tried_max: int = HOSTS_TRIED_MAX,
    candidates_tried_max: int = CANDIDATES_TRIED_MAX,
) -> SchedulerOptions:
    """Options from what a configuration says: names of filters, weighers as ``name=multiplier`` (without
    one: 1.0). Raises WrongOption."""
    filter_names = tuple(filter_names)
    _once_each("filter", filter_names)
    parts = [setting.partition("=") for setting in weigher_settings]
    names = tuple(name.strip() for name, _, _ in parts)
    _once_each("weigher", names)
    multipliers = [_multiplier(name, text if equals else "1.0") for name, equals, text in parts]
    bounds = {
        "subset_size": (subset_size, SUBSET_SIZE_MAX),
        "hosts_tried_max": (hosts_tried_max, 1_000_000),
        "candidates_tried_max": (candidates_tried_max, 1_000_000),
    }
    for name, (value, value_max) in bounds.items():
        if not 1 <= value <= value_max:
            raise WrongOption(f"{name} is {value}; it must be from 1 to {value_max}")
    return SchedulerOptions(
        filters=filters(filter_names),
        weighers=tuple(zip(weighers(names), multipliers, strict=True)),
        subset_size=subset_size,
        hosts_tried_max=hosts_tried_max,
        candidates_tried_max=candidates_tried_max,
    )


def _once_each(kind: str, names: tuple[str, ...]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise WrongOption(f"the {kind} {twice[0]} is named twice")


def _multiplier(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not abs(number) <= MULTIPLIER_MAX:
        raise WrongOption(
            f"the multiplier of the weigher {name} is {text!r}; it must be a number from "
            f"{-MULTIPLIER_MAX:.0f} to {MULTIPLIER_MAX:.0f}"
        )
    return number
