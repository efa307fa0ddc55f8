"""Trials: changes made to a view and always taken back. Plans, dry runs and explanations are made on them.

However a trial ends, the view is as it was before. Nothing else may read the view while a trial is open.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from berth.model.events import Event, inverse
from berth.view.view import View

_STEPS_PER_EVENT: Final = 6
"""To apply it, and to take it back."""


class Trial:
    """``with Trial(view) as trial``: the events that are applied through it are taken back at the end."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._applied: list[Event] = []

    def apply(self, events: Sequence[Event]) -> None:
        self._view.steps.take(_STEPS_PER_EVENT * len(events))
        for event in events:
            self._view.apply(event)
            self._applied.append(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for event in reversed(self._applied):
            self._view.apply(inverse(event))
        self._applied.clear()
