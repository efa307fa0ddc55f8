"""Filters and weighers: the two seams of the scheduler. Each is a module, found by its file's name.

Names of a configuration are looked up in the folder: adding a plugin is adding a file.

Members are placed one after the other, and what a plan has placed so far is in the view that filters and
weighers are shown. The request that they are shown is about one member: the first of ``request.members``.
"""

import pkgutil
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from berth.model.scheduling import ScheduleRequest
from berth.view import Mask, ProviderRecord, View

Rows = NDArray[np.intp]
"""The rows of hosts, that is of root providers."""

Weights = NDArray[np.float64]


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


_OFFERS: Final = {
    "filters": ("FOLLOWS_CLAIMS", "describe_request", "passing_hosts", "describe_host"),
    "weighers": ("weigh",),
}
"""What a module of each folder must have."""


def _modules(kind: str, names: Iterable[str]) -> Iterator[Any]:
    package = import_module(f"berth.scheduler.{kind}")
    known = sorted(info.name for info in pkgutil.iter_modules(package.__path__))
    for name in names:
        if name not in known:
            raise UnknownPlugin(f"there is no {kind[:-1]} called {name}; there are {', '.join(known)}")
        module = import_module(f"{package.__name__}.{name}")
        missing = [offer for offer in _OFFERS[kind] if not hasattr(module, offer)]
        if missing:
            raise WrongOption(f"the {kind[:-1]} {name} lacks {', '.join(missing)}")
        yield module
