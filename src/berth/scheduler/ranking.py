"""The ranking of hosts: the weights of all weighers in one number, and hosts in that order."""

from collections.abc import Iterator
from typing import Final, Protocol

import numpy as np

from berth.model.ids import Row
from berth.model.scheduling import ScheduleRequest
from berth.scheduler.options import SchedulerOptions
from berth.scheduler.plugins import Rows, Weights
from berth.view import View

_OUT: Final = -np.inf
_FIRST_FEW: Final = 32


class Rng(Protocol):
    """The part of ``random.Random`` that a plan uses."""

    def randrange(self, stop: int, /) -> int: ...


def weigh_hosts(view: View, request: ScheduleRequest, options: SchedulerOptions, hosts: Rows) -> Weights:
    """A number for each host. The weights of each weigher are first brought to 0..1 over these hosts, so that
    a multiplier means the same whatever the weigher counts."""
    total = np.zeros(len(hosts))
    if len(hosts) < 2:
        return total
    for weigher, multiplier in options.weighers:
        weights = weigher.weigh(view, request, hosts) if multiplier else None
        if weights is None:
            continue
        low, high = weights.min(), weights.max()
        if high > low:
            weights -= low
            weights *= multiplier / (high - low)
            total += weights
    return total


class Ranking:
    """Hosts and their weights, of which one after the other is taken."""

    def __init__(self, hosts: Rows, weights: Weights) -> None:
        self._hosts = hosts
        self._weights = weights
        self._left = len(hosts)

    @property
    def is_empty(self) -> bool:
        return not self._left

    def take_any_of_best(self, count: int, rng: Rng) -> Row | None:
        """A host at random among the ``count`` best that are left, and those as good as the last of them."""
        if not self._left:
            return None
        weights = self._weights
        least = weights.max() if count == 1 else self._least_of_best(count)
        best = np.flatnonzero(weights >= least)
        place = best[rng.randrange(len(best))]
        weights[place] = _OUT
        self._left -= 1
        return Row(int(self._hosts[place]))

    def _least_of_best(self, count: int) -> np.float64:
        end = len(self._weights)
        at = end - min(count, self._left)
        return np.float64(np.partition(self._weights, at)[at])

    def best_first(self) -> Iterator[Row]:
        """The hosts that are left in the order of their weights, and of their rows where these are equal."""
        # Mostly a few are enough: then they are put in order and the others are not.
        some = _FIRST_FEW if self._left > 4 * _FIRST_FEW else self._left
        if some < self._left:
            least = self._least_of_best(some)
            best = np.flatnonzero(self._weights >= least)
            order = best[np.argsort(-self._weights[best], kind="stable")][:some]
            yield from self._rows(order)
        order = np.argsort(-self._weights, kind="stable")
        yield from self._rows(order[some if some < self._left else 0 : self._left])

    def _rows(self, places: np.ndarray[tuple[int], np.dtype[np.intp]]) -> list[Row]:
        return [Row(row) for row in self._hosts[places].tolist()]
