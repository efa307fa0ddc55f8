"""Users and operators of a simulated cloud: what they ask, what they are answered, and what that promises.

An answer is a promise. What was answered with success is in the journal by then, and was not before it was
asked; what was refused is not there; an internal error is a bug. Of a request without an answer, or with one
that says that the outcome is unknown, nothing is known.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from berth.client import Answer, Client, Unreachable
from berth.sim.audit import Fail, Ledger

_RETRY_S: Final = 5.0
REQUEST_ID = "x-openstack-request-id"
READS = ("GET", "HEAD", "OPTIONS")
_SEVERAL = ("/berth/v1/doctor/repair",)
"""What is several changes, one after the other."""
_COMPUTE = "/compute/"
"""Whatever is accepted there begins something."""


class Asked(NamedTuple):
    """One request: when, what, and how it was answered. ``answer`` None: not at all."""

    method: str
    path: str
    body: object
    from_s: float
    to_s: float
    answer: Answer | None


class Users:
    """``asked`` is told of every request that has ended."""

    def __init__(self, client: Client, ledger: Ledger, now_s: Callable[[], float], fail: Fail) -> None:
        self._client = client
        self._ledger = ledger
        self._now_s = now_s
        self._fail = fail
        self.asked: list[Callable[[Asked], None]] = []

    async def ask(self, method: str, path: str, body: object = None, timeout_s: float = 60) -> Answer | None:
        """The answer; None if there is none."""
        from_s = self._now_s()
        try:
            answer = await self._client.ask(method, path, body, timeout_s)
        except Unreachable:
            answer = None
        asked = Asked(method, path, body, from_s, self._now_s(), answer)
        if answer is not None:
            self._judge(asked, answer)
        for told in self.asked:
            told(asked)
        return answer

    async def ask_until_served(self, method: str, path: str, body: object = None) -> Answer:
        """The answer of one who can answer: a call that hangs in a database does so for long after all faults
        have stopped."""
        while True:
            answer = await self.ask(method, path, body)
            if answer is not None and answer.status != 503:
                return answer
            await asyncio.sleep(_RETRY_S)

    async def must(self, method: str, path: str, body: object = None) -> Any:
        """The body of an answer that says yes, in a cloud where nothing goes wrong any more."""
        answer = await self.ask_until_served(method, path, body)
        if answer.status >= 300:
            raise AssertionError(f"{method} {path}: {answer}")
        return answer.body

    def _judge(self, asked: Asked, answer: Answer) -> None:
        about = f"{asked.method} {asked.path}: {answer.status}"
        if answer.status == 500:
            self._fail(f"{about}: {answer.body}")
        written = self._ledger.requests.get(str(answer.headers.get(REQUEST_ID)), [])
        if written and (400 <= answer.status < 500 or asked.method in READS):
            self._fail(f"{about}, and it has written at {written}")
        if len(written) > 1 and asked.path not in _SEVERAL:
            self._fail(f"{about}, and it has written more than once: at {written}")
        if not written and asked.path.startswith(_COMPUTE) and answer.status == 202:
            self._fail(f"{about}, and it has written nothing")
