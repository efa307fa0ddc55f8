"""Filters and weighers, the two seams of the scheduler, and the options that choose among them.

Each is a module, found by its file's name. Names of a configuration are looked up in the folder: adding a
plugin is adding a file. Which are enabled by default is a setting like any other (``runtime.settings``).

Members are placed one after the other, and what a plan has placed so far is in the view that filters and
weighers are shown. The request that they are shown is about one member: the first of ``request.members``.
"""

import functools
import math
import pkgutil
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, Final, Protocol, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from berth.model.scheduling import ScheduleRequest
from berth.scheduler.devices import DeviceCatalog, WrongDevice, read_catalog
from berth.view import Mask, ProviderRecord, View

Rows = NDArray[np.intp]
"""The rows of hosts, that is of root providers."""

Weights = NDArray[np.float64]


MULTIPLIER_MAX: Final = 1e9
SUBSET_SIZE_MAX: Final = 10_000
HOSTS_TRIED_MAX: Final = 1_000
CANDIDATES_TRIED_MAX: Final = 200

_OFFERS: Final = {
    "filters": ("FOLLOWS_CLAIMS", "describe_request", "passing_hosts", "describe_host"),
    "weighers": ("weigh",),
}
"""What a module of each folder must have."""


class Filter(Protocol):
    """Rules hosts out, for the whole fleet at once."""

    __name__: str

    FOLLOWS_CLAIMS: bool
    """Whether what one member of a request claims changes the answer for the next."""

    def describe_request(self, view: View, request: ScheduleRequest) -> str | None:
        """What the request wants, in words; None if the filter does not apply to it."""
        ...

    def passing_hosts(self, view: View, request: ScheduleRequest) -> Mask:
        """A mask over all rows; only those of hosts matter. It is the caller's to read, not to write. Asked
        only if ``describe_request`` said something."""
        ...

    def describe_host(self, view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
        """What a host has of what is wanted, in words."""
        ...


class Weigher(Protocol):
    """Ranks hosts. Any scale will do: weights are brought to 0..1 before they are added."""

    __name__: str

    def weigh(self, view: View, request: ScheduleRequest, hosts: Rows) -> Weights | None:
        """One number for each host, more is better; None where there is nothing to say. The
        vector is the caller's to change."""
        ...


class WrongOption(Exception):
    """A setting of the scheduler makes no sense. The message is for the operator."""


class UnknownPlugin(WrongOption):
    """No file has this name."""


def filters(names: Iterable[str]) -> tuple[Filter, ...]:
    return tuple(cast(Filter, module) for module in _modules("filters", names))


def weighers(names: Iterable[str]) -> tuple[Weigher, ...]:
    return tuple(cast(Weigher, module) for module in _modules("weighers", names))


def name_of(plugin: Filter | Weigher) -> str:
    """What a configuration calls a plugin."""
    return plugin.__name__.rpartition(".")[2]


@functools.cache
def _list_names(kind: str) -> list[str]:
    """What there is: each is a file."""
    package = import_module(f"berth.scheduler.{kind}")
    return sorted(info.name for info in pkgutil.iter_modules(package.__path__))


def _modules(kind: str, names: Iterable[str]) -> Iterator[Any]:
    known = _list_names(kind)
    for name in names:
        if name not in known:
            raise UnknownPlugin(f"there is no {kind[:-1]} called {name}; there are {', '.join(known)}")
        module = import_module(f"berth.scheduler.{kind}.{name}")
        missing = [offer for offer in _OFFERS[kind] if not hasattr(module, offer)]
        if missing:
            raise WrongOption(f"the {kind[:-1]} {name} lacks {', '.join(missing)}")
        yield module


class SchedulerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``subset_size``: the choice is made at random among the best that many hosts, and those that are as
    good as the last of them. ``hosts_tried_max``: after how many hosts without success a plan gives up.
    ``candidates_tried_max``: how many candidates on one host are put to the ledger before it is given up.
    ``devices``: what the names of devices in flavors mean."""

    filters: tuple[Filter, ...]
    weighers: tuple[tuple[Weigher, float], ...]
    subset_size: int = 1
    hosts_tried_max: int = HOSTS_TRIED_MAX
    candidates_tried_max: int = CANDIDATES_TRIED_MAX
    devices: DeviceCatalog = DeviceCatalog()


def scheduler_options(
    filter_names: Iterable[str],
    weigher_settings: Iterable[str],
    subset_size: int = 1,
    hosts_tried_max: int = HOSTS_TRIED_MAX,
    candidates_tried_max: int = CANDIDATES_TRIED_MAX,
    pci_aliases: Iterable[str] = (),
    device_profiles: Iterable[str] = (),
) -> SchedulerOptions:
    """Options from what a configuration says: names of filters, weighers as ``name=multiplier`` (without
    one: 1.0), devices as in devices.py. Raises WrongOption."""
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
    try:
        devices = read_catalog(pci_aliases, device_profiles)
    except WrongDevice as error:
        raise WrongOption(str(error)) from error
    return SchedulerOptions(
        devices=devices,
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
