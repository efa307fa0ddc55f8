"""How a conductor changes allocations: through Placement's API, and nothing else.

Every change is one POST of all the consumers it is about, each at the generation that was last written. On a
generation conflict they are read. If they hold what they should hold after the change, the change was made
and only its answer was lost; else it is made at the generations that were read. A change by another client is
refused by a check alone, before anything is destroyed, by the rules of ``sagas.conflicts``.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from berth.client import Answer, Client, Unreachable
from berth.model.placement import INSTANCE, MIGRATION
from berth.model.saga_runs import ClaimSnapshot, Destination, SagaRun
from berth.model.servers import Held, Place
from berth.sagas.conflicts import as_dict, as_held, describe_difference, differs, minus, plus, same
from berth.sagas.runner import saga_of
from berth.sagas.saga import ClaimChange

_ATTEMPTS: Final = 20
_CONCURRENT: Final = "placement.concurrent_update"
VERSION: Final = "placement 1.39"
_TIMEOUT_S: Final = 10


class ClaimRefused(Exception):
    """Placement refuses a change; the message is its own. Where others have changed the allocations,
    ``found`` is what the server and its migration hold."""

    def __init__(self, reason: str, found: tuple[Held, Held] | None = None) -> None:
        super().__init__(reason)
        self.found = found


class PlacementUnavailable(Exception):
    """Placement does not answer. Whether a change was made is not known."""


class _ConsumerChange(NamedTuple):
    """What a consumer is to hold, in place of what it was last given. ``keeps``: with what others have
    added to that meanwhile, except on the host ``left``: the server is not there any more."""

    consumer: str
    type: str
    last: ClaimSnapshot
    wanted: Held = ()
    keeps: bool = False
    left: Place | None = None


class ClaimWriter:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def write(self, run: SagaRun, wanted: ClaimChange) -> tuple[ClaimSnapshot, ClaimSnapshot | None]:
        """Make a change for a run, whatever others have changed; what server and migration hold afterwards.
        Only a check is refused because of others."""
        server = _ConsumerChange(run.server, INSTANCE, run.claim)
        last = run.migration_claim or ClaimSnapshot((), None)
        migration = None if run.migration is None else _ConsumerChange(run.migration, MIGRATION, last)
        match wanted:
            case "release":
                changes = [server] if migration is None else [server, migration]
                released = await self._change(run, changes)
                return released[0], None if migration is None else released[1]
            case "release_migration" if migration is not None:
                (released_migration,) = await self._change(run, [migration])
                return run.claim, released_migration
            case "give_back" if migration is not None:
                given = plus((last.held, run.shared))
                if not last.held:
                    # It was given back already, before a crash.
                    given = minus(run.claim.held, run.claim.kept)
                left = None if run.dest == run.source else run.dest
                back = server._replace(wanted=given, keeps=True, left=left)
                first, second = await self._change(run, [back, migration])
                return first, second
            case "check":
                await self._check(run)
        return run.claim, run.migration_claim

    async def move(self, run: SagaRun, dest: Destination) -> tuple[ClaimSnapshot, ClaimSnapshot | None]:
        """Move the server's claim to an alternate: group policies and capacity are judged there. The
        migration holds what the server does not go on using there."""
        left = None if dest.place == run.dest else run.dest
        changes = [_ConsumerChange(run.server, INSTANCE, run.claim, dest.held, keeps=True, left=left)]
        last = run.migration_claim
        if last is None or run.migration is None or same(dest.shared, run.shared):
            (moved,) = await self._change(run, changes)
            return moved, last
        wanted = minus(plus((last.held, run.shared)), dest.shared)
        changes.append(_ConsumerChange(run.migration, MIGRATION, last, wanted))
        first, second = await self._change(run, changes)
        return first, second

    async def _change(self, run: SagaRun, changes: Sequence[_ConsumerChange]) -> list[ClaimSnapshot]:
        """Make all changes in one step. A consumer that another client has written is read, and written
        over."""
        given = [change.last.generation for change in changes]
        kept = [await self._find_kept(change, change.last.kept) for change in changes]
        for _ in range(_ATTEMPTS):
            wanted = [plus((change.wanted, more)) for change, more in zip(changes, kept, strict=True)]
            body = {
                change.consumer: _format_claim(run, change.type, held, generation)
                for change, held, generation in zip(changes, wanted, given, strict=True)
                if held or generation is not None
            }
            if not body:
                return [ClaimSnapshot((), None) for _ in changes]
            answer = await self._ask("POST", "/allocations", body)
            if answer.status == 204:
                return [
                    ClaimSnapshot(held, (generation or 0) + 1 if held else None, more)
                    for held, generation, more in zip(wanted, given, kept, strict=True)
                ]
            if answer.status != 409 or answer.code != _CONCURRENT:
                raise ClaimRefused(answer.detail)
            now = [await self._read_held(change.consumer) for change in changes]
            if all(map(_is_made, changes, now)):
                return [
                    _make_snapshot(change, snapshot) for change, snapshot in zip(changes, now, strict=True)
                ]
            given = [snapshot.generation for snapshot in now]
            kept = [
                await self._find_kept(change, minus(snapshot.held, minus(change.last.held, change.last.kept)))
                for change, snapshot in zip(changes, now, strict=True)
            ]
        raise PlacementUnavailable(f"Placement write contention: gave up after {_ATTEMPTS} attempts")

    async def _find_kept(self, change: _ConsumerChange, more: Held) -> Held:
        """The part of what others have added that stays."""
        if not change.keeps or change.left is None:
            return more if change.keeps else ()
        roots = {provider: await self._find_root(provider) for provider, _ in more}
        return tuple(part for part in more if roots[part[0]] != change.left.id)

    async def _check(self, run: SagaRun) -> None:
        """Refuse what others have changed, if the policy says so, before anything is destroyed."""
        if run.policy != "fail" or run.is_forced:
            return
        released, written = saga_of(run).released, saga_of(run).written
        server = (await self._read_held(run.server)).held
        migration = () if run.migration is None else (await self._read_held(run.migration)).held
        found = []
        is_servers = "server" in written
        if is_servers and differs(server, run.claim.held, is_released="server" in released):
            found.append(describe_difference(server, run.claim.held))
        last = run.migration_claim
        if last is not None and differs(migration, last.held, is_released="migration" in released):
            found.append(f"of the migration: {describe_difference(migration, last.held)}")
        if found:
            reason = (
                f"another client has changed the allocations ({'; '.join(found)}). Send the request again: "
                "it goes on, unless the setting conflict_repeat refuses it until the doctor has repaired the "
                "server"
            )
            raise ClaimRefused(reason, (server, migration))

    async def _find_root(self, provider: str) -> str:
        """The root of a provider's tree; the provider itself, if it is gone."""
        answer = await self._ask("GET", f"/resource_providers/{provider}", None)
        return str(answer.body["root_provider_uuid"]) if answer.status == 200 else provider

    async def _read_held(self, consumer: str) -> ClaimSnapshot:
        answer = await self._ask("GET", f"/allocations/{consumer}", None)
        if answer.status != 200:
            raise PlacementUnavailable(answer.detail)
        found = answer.body["allocations"]
        held = as_held({id: dict(there["resources"]) for id, there in found.items()})
        return ClaimSnapshot(held, answer.body.get("consumer_generation"))

    async def _ask(self, method: str, path: str, body: object) -> Answer:
        try:
            answer = await self._client.ask(method, path, body, _TIMEOUT_S)
        except Unreachable as error:
            raise PlacementUnavailable(str(error)) from error
        if answer.status >= 500 or answer.status in (401, 429):
            raise PlacementUnavailable(answer.detail)
        return answer


def _is_made(change: _ConsumerChange, now: ClaimSnapshot) -> bool:
    """Whether a consumer holds what it was to hold, and others at most have added to it since: then only
    the answer was lost. A migration is written by no other client, and holds exactly that."""
    if change.type == MIGRATION or not change.wanted:
        return same(now.held, change.wanted)
    is_as_it_was = not minus(change.last.held, now.held) and bool(minus(change.last.held, change.wanted))
    return not minus(change.wanted, now.held) and not is_as_it_was


def _make_snapshot(change: _ConsumerChange, now: ClaimSnapshot) -> ClaimSnapshot:
    return ClaimSnapshot(now.held, now.generation, minus(now.held, change.wanted) if change.keeps else ())


def _format_claim(run: SagaRun, type: str, held: Held, generation: int | None) -> dict[str, Any]:
    return {
        "allocations": {id: {"resources": amounts} for id, amounts in as_dict(held).items()},
        "project_id": run.project,
        "user_id": run.user,
        "consumer_generation": generation,
        "consumer_type": type,
    }
