"""How much work is done on a view, counted in steps: about a microsecond each on an idle machine.

Code that works on a view takes steps where the work grows with the request or with the fleet: a mask over all
rows, a claim that is judged, a choice that a search makes, an entry that is rendered. Steps are counted and
not timed, so that the same question on the same view always costs the same.

Mostly there is no limit. The engine sets one while it works for one caller and all others wait: work that
needs more ends with ``OutOfSteps``, has changed nothing, and is done again where no other request waits for
it.
"""

import sys
from typing import Final

UNLIMITED: Final = sys.maxsize


class OutOfSteps(Exception):
    """The work takes more steps than it may take here. The view is as it was before."""


class Steps:
    """``left`` is how many steps may still be taken. ``begin`` and ``end`` belong to the engine; steps may be
    taken only where the view can be left as it is: never between an event and its inverse without a trial
    around them."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = UNLIMITED

    def begin(self, limit: int) -> None:
        """Allow this many steps until ``end``."""
        self.left = limit

    def end(self) -> None:
        self.left = UNLIMITED

    def take(self, count: int) -> None:
        """Count steps before they are taken; OutOfSteps if there are not as many left."""
        self.left -= count
        if self.left < 0:
            raise OutOfSteps
