"""Rejections of the scheduler: nothing fits, or the request names something that does not exist."""

import msgspec

from berth.model.ids import ConsumerId, Index
from berth.model.rejections.rejection import Rejection


class PoolShortage(msgspec.Struct, frozen=True):
    """A pool that has too little for one member. ``held``: what the member has of it already, and would have
    back."""

    pool: str
    resource_class: str
    asked: int
    free: int
    capacity: int
    held: int = 0

    @property
    def sentence(self) -> str:
        beside = f", beside {self.held} that it holds already" if self.held else ""
        return (
            f"The pool {self.pool} has {self.free} of {self.capacity} {self.resource_class} free{beside}; "
            f"{self.asked} are asked for."
        )


class ConstraintStep(msgspec.Struct, frozen=True):
    """One constraint in order: how many of the remaining hosts it removed, and how many it left. ``pools``:
    those that the removed hosts could use, and that have too little free. ``nearest`` is a sentence about one
    of those that it removed: what of which provider falls short."""

    constraint: str
    asked: str
    removed: int
    left: int
    pools: tuple[PoolShortage, ...] = ()
    nearest: str = ""


class NoFit(Rejection, frozen=True):
    """Fewer members can be placed than the request needs. ``refused`` is the ledger's last rejection of a
    candidate, if there was one. ``gave_up``: not all candidates were tried, because there were too many; more
    might fit."""

    needed: int
    fitting: int
    steps: tuple[ConstraintStep, ...]
    refused: Rejection | None = None
    gave_up: bool = False


class PlanStale(Rejection, frozen=True):
    """A plan of an earlier ``index`` cannot be claimed now. ``why`` is a sentence."""

    index: Index
    why: str


class UnknownHost(Rejection, frozen=True):
    """A hint names a host that is not there: by name or uuid, it must be a root provider."""

    hint: str
    name: str


class UnknownConsumer(Rejection, frozen=True):
    """A hint names a consumer that holds nothing."""

    hint: str
    consumer: ConsumerId


class SpecInvalid(Rejection, frozen=True):
    """A key or value of a flavor or an image is not understood. ``accepted`` says what is."""

    key: str
    value: str
    accepted: str
