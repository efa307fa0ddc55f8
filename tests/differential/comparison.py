"""The same requests to Berth and to upstream: the first on which they differ, and the fewest requests that
still show it.

Sets of candidates may differ where upstream is wrong by its own word (docs/guides/compatibility.md). That is
found out by claiming: what only Berth offers must be granted by both; what only upstream offers must be
refused by both, or not be what was asked for.
"""

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.differential.exchange import ComparedAnswer, WireRequest, answer_of
from tests.differential.upstream import Upstream
from tests.worlds import ApplicationWorld

_CLAIMANT: Final = "c1a10000-0000-4000-8000-000000000000"


class Difference(NamedTuple):
    """``requests`` ends with the one that was answered differently."""

    requests: tuple[WireRequest, ...]
    upstream: ComparedAnswer
    berth: ComparedAnswer

    def __str__(self) -> str:
        sent = "\n".join(f"  {request}" for request in self.requests)
        return f"{sent}\nupstream: {self.upstream}\nberth:    {self.berth}"


async def compare(upstream: Upstream, requests: Sequence[WireRequest]) -> Difference | None:
    """The first difference, from an empty world on."""
    upstream.reset()
    with tempfile.TemporaryDirectory() as folder:
        async with ApplicationWorld(Path(folder), max_allocation_candidates=-1).running() as world:
            return await _Pair(upstream, world).first_difference(requests)


class _Pair:
    """Both servers, with the same history."""

    def __init__(self, upstream: Upstream, world: ApplicationWorld) -> None:
        self._upstream = upstream
        self._world = world

    async def first_difference(self, requests: Sequence[WireRequest]) -> Difference | None:
        for number, request in enumerate(requests):
            sent = request._replace(body=self._with_generations(request.body))
            theirs, ours = await self._ask(sent)
            if theirs.status >= 500:
                # Where upstream fails, what Berth answers is its own business: but they may have parted.
                if sent.method == "GET":
                    continue
                return None
            if theirs != ours and not await self._is_excused(sent, theirs, ours):
                return Difference((*requests[: number + 1],), theirs, ours)
        return None

    async def _ask(self, request: WireRequest) -> tuple[ComparedAnswer, ComparedAnswer]:
        claims = request.method != "GET" and request.path.startswith("/allocations")
        consumers = self._upstream.consumers() if claims else frozenset()
        theirs = self._upstream.ask(request)
        if claims and theirs.status >= 400:
            self._upstream.forget_consumers_beside(consumers)
        got = await self._world.ask_raw(
            request.method, request.path, request.content, version=f"1.{request.version}"
        )
        return theirs, answer_of(got.status, got.headers, got.body)

    def _with_generations(self, body: Any) -> Any:
        if isinstance(body, str) and body.startswith("@"):
            found = self._upstream.ask(WireRequest("GET", f"/resource_providers/{body[1:]}", 39))
            return found.body["generation"] if found.status == 200 else 0
        if isinstance(body, dict):
            return {name: self._with_generations(value) for name, value in body.items()}
        return body

    # -- candidates -----------------------------------------------------------------------------

    async def _is_excused(self, request: WireRequest, theirs: ComparedAnswer, ours: ComparedAnswer) -> bool:
        if not request.path.startswith("/allocation_candidates") or (theirs.status, ours.status) != (
            200,
            200,
        ):
            return False
        if theirs.headers != ours.headers:
            return False
        pairs = parse_qsl(urlsplit(request.path).query, keep_blank_values=True)
        if any(name == "limit" for name, _ in pairs):
            return await self._is_within_limit(request, pairs, theirs, ours)
        offered, found = theirs.body["allocation_requests"], ours.body["allocation_requests"]
        asked = _amounts_asked(pairs)
        granted = [await self._is_granted(one) for one in found if one not in offered]
        refused = [
            _amounts_of(one) != asked or not await self._is_granted(one)
            for one in offered
            if one not in found
        ]
        return bool(granted or refused) and all(granted) and all(refused)

    async def _is_within_limit(
        self, request: WireRequest, pairs: list[tuple[str, str]], theirs: ComparedAnswer, ours: ComparedAnswer
    ) -> bool:
        """Which of all candidates a limit leaves is each server's own choice."""
        rest = urlencode([(name, value) for name, value in pairs if name != "limit"])
        unlimited = request._replace(path=f"/allocation_candidates?{rest}")
        all_theirs, all_ours = await self._ask(unlimited)
        if all_theirs != all_ours and not await self._is_excused(unlimited, all_theirs, all_ours):
            return False
        limit = int(next(value for name, value in pairs if name == "limit")) or len(
            all_ours.body["allocation_requests"]
        )
        found = ours.body["allocation_requests"]
        everything = all_ours.body["allocation_requests"]
        return len(found) == min(limit, len(everything)) and all(one in everything for one in found)

    async def _is_granted(self, candidate: dict[str, Any]) -> bool:
        """Whether both servers let a new consumer claim it. It is given back at once."""
        body = {
            "allocations": {id: {"resources": amounts} for id, amounts in _allocations_of(candidate).items()},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
        }
        theirs, ours = await self._ask(WireRequest("PUT", f"/allocations/{_CLAIMANT}", 28, body))
        assert theirs == ours, (body, theirs, ours)
        if theirs.status == 204:
            assert await self._ask(WireRequest("DELETE", f"/allocations/{_CLAIMANT}", 28)) is not None
        return theirs.status == 204


def _allocations_of(candidate: dict[str, Any]) -> dict[str, dict[str, int]]:
    found = candidate["allocations"]
    if isinstance(found, list):
        return {one["resource_provider"]["uuid"]: one["resources"] for one in found}
    return {id: one["resources"] for id, one in found.items()}


def _amounts_of(candidate: dict[str, Any]) -> Counter[str]:
    total: Counter[str] = Counter()
    for amounts in _allocations_of(candidate).values():
        total.update(amounts)
    return total


def _amounts_asked(pairs: list[tuple[str, str]]) -> Counter[str]:
    """What all groups ask for together. Of a repeated parameter the last counts."""
    total: Counter[str] = Counter()
    for name, value in dict(pairs).items():
        if name.startswith("resources"):
            total.update({part.split(":")[0]: int(part.split(":")[1]) for part in value.split(",")})
    return total


# -- shrinking ----------------------------------------------------------------------------------


async def shrink(upstream: Upstream, difference: Difference) -> Difference:
    """The same kind of difference with as few requests, and as few parameters, as removing them one by one
    leaves."""
    size = len(difference.requests) // 2
    while size:
        start = 0
        while start < len(difference.requests) - 1:
            kept = difference.requests[:start] + difference.requests[start + size :]
            smaller = await compare(upstream, kept) if kept else None
            if smaller is not None and _is_alike(smaller, difference):
                difference = smaller
            else:
                start += size
        size //= 2
    return await _with_fewer_parameters(upstream, difference)


async def _with_fewer_parameters(upstream: Upstream, difference: Difference) -> Difference:
    *before, last = difference.requests
    path, _, query = last.path.partition("?")
    parts = query.split("&") if query else []
    number = 0
    while number < len(parts):
        fewer = parts[:number] + parts[number + 1 :]
        smaller = await compare(upstream, [*before, last._replace(path=f"{path}?{'&'.join(fewer)}")])
        if smaller is not None and _is_alike(smaller, difference):
            difference, parts = smaller, fewer
        else:
            number += 1
    return difference


def _is_alike(one: Difference, other: Difference) -> bool:
    return (one.upstream.status, one.berth.status) == (other.upstream.status, other.berth.status)
