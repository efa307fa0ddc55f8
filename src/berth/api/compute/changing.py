"""Changes that are judged twice: by the API, which knows what its callers may do, and by the ledger.

The API's own questions (is the name taken, is the host in another zone) are asked in the writer's turn, of
the view that the change is made from: what was true then is true of the change.
"""

from collections.abc import Callable
from typing import TypeVar

from berth.api.compute.calls import Call
from berth.api.compute.errors import ComputeProblem
from berth.model.commands import Command
from berth.model.rejections import RecordMoved, Rejection
from berth.view import View

T = TypeVar("T")


async def change(call: Call, make: Callable[[View, int], Command], answer: Callable[[View], T]) -> T:
    """Have a change made that ``make`` works out; a ComputeProblem that it raises is the answer."""

    refused: ComputeProblem | None = None

    def propose(view: View, now_s: int) -> Command | Rejection:
        nonlocal refused
        try:
            refused = None
            return make(view, now_s)
        except ComputeProblem as problem:
            refused = problem
            return RecordMoved("", "")

    outcome = await call.try_submit(propose, answer)
    if refused is not None:
        raise refused
    if isinstance(outcome, Rejection):
        raise call.problem_of(outcome)
    return outcome
