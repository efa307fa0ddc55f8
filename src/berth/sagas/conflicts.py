"""Conflicts: another client has changed what a server, or its migration, holds.

A record says what Berth last wrote. Content counts, generations do not: the same content at a newer
generation is no conflict, and the newer generation is adopted. What is to be released and is gone already is
no conflict either. Everything else is one, and the conflict policy decides:

* **fail**: the request is refused once. What was found is recorded on the server, so that the request can be
  repeated: it then goes on as by merge, or is refused until the doctor has repaired the server
  (``OnRepeat``). A change that has not been reported yet is refused again, once.
* **retry**: what there is now is taken for what the server had. A move leaves what others added behind.
* **merge**: the same, but what others have added (``Server.kept``) stays with the server: a move asks for it
  again at the destination.

A cell judges by the same function (``differs``) before the first step that cannot be undone. After it no
conflict stops the saga.
"""

from collections.abc import Collection, Iterable
from typing import Literal, NamedTuple

import msgspec

from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.ids import ConsumerId, ProviderId
from berth.model.placement import Holdings
from berth.model.rejections import ServerChangedByOthers
from berth.model.saga_runs import ClaimSnapshot
from berth.model.servers import ConflictPolicy, FoundConflict, Held, Migration, Server
from berth.view import View

OnRepeat = Literal["merge", "refuse"]


def generation_of(view: View, consumer: str) -> int | None:
    record = view.consumers.get(ConsumerId(consumer))
    return None if record is None else record.consumer.generation


def held_now(view: View, consumer: str) -> Held:
    record = view.consumers.get(ConsumerId(consumer))
    return () if record is None else name_classes(view, record.held)


def name_classes(view: View, held: Holdings) -> Held:
    name_of = view.classes.name_of
    return tuple((provider, tuple((name_of(id), n) for id, n in amounts)) for provider, amounts in held)


def as_dict(held: Held) -> dict[str, dict[str, int]]:
    return {provider: dict(amounts) for provider, amounts in held}


def as_held(amounts: dict[str, dict[str, int]]) -> Held:
    """The same as holdings, without amounts of zero."""
    found = ((id, tuple((name, n) for name, n in here.items() if n > 0)) for id, here in amounts.items())
    return tuple((ProviderId(id), here) for id, here in found if here)


def same(one: Held, other: Held) -> bool:
    return as_dict(one) == as_dict(other)


def plus(parts: Iterable[Held]) -> Held:
    total: dict[str, dict[str, int]] = {}
    for part in parts:
        for id, amounts in part:
            here = total.setdefault(id, {})
            for name, n in amounts:
                here[name] = here.get(name, 0) + n
    return as_held(total)


def minus(one: Held, other: Held) -> Held:
    """What one has beyond the other, by provider and class."""
    less = as_dict(other)
    return as_held(
        {
            id: {name: n - less.get(id, {}).get(name, 0) for name, n in here.items()}
            for id, here in as_dict(one).items()
        }
    )


def overlap(one: Held, other: Held) -> Held:
    """What both have: of each class of each provider the smaller amount."""
    amounts = as_dict(other)
    return as_held(
        {
            id: {name: min(n, amounts.get(id, {}).get(name, 0)) for name, n in here.items()}
            for id, here in as_dict(one).items()
        }
    )


def drop_missing_providers(view: View, held: Held) -> Held:
    """The part on providers that still exist."""
    return tuple(part for part in held if part[0] in view.providers)


def differs(now: Held, last: Held, *, is_released: bool = False) -> bool:
    """Whether others have changed what a consumer holds. ``is_released``: the saga is to release it."""
    return not same(now, last) and not (is_released and not now)


def describe_difference(now: Held, last: Held) -> str:
    """What differs, by resource class, in words."""
    more, less = (
        ", ".join(f"{name} {n}" for name, n in sorted(count_classes(part).items()))
        for part in (minus(now, last), minus(last, now))
    )
    return "; ".join(words for words in (more and f"added: {more}", less and f"missing: {less}") if words)


def count_classes(held: Held) -> dict[str, int]:
    """How much is held of each class, on all providers together."""
    total: dict[str, int] = {}
    for _, amounts in held:
        for name, n in amounts:
            total[name] = total.get(name, 0) + n
    return total


class ConflictRules(NamedTuple):
    """``repeat``: what ``fail`` does with a request that is repeated after the conflict was reported."""

    policy: ConflictPolicy = "fail"
    repeat: OnRepeat = "merge"


class ServerHoldings(NamedTuple):
    """What a server holds when a saga begins; ``kept`` is the part that others have added.
    ``migration`` is what its migration holds, where that takes part."""

    held: Held
    kept: Held
    generation: int | None
    migration: ClaimSnapshot


def find_holdings(
    view: View,
    server: Server,
    rules: ConflictRules,
    asked: str,
    now_s: int,
    *,
    migration: Migration | None = None,
    released: Collection[str] = (),
    is_forced: bool = False,
) -> ServerHoldings | Enact | ServerChangedByOthers:
    """What a server holds; or the refusal, as a rejection or as the command that records it. ``migration``
    is judged with the server. ``released``: which of both the saga is to release, "server" or "migration"."""
    now, generation = held_now(view, server.id), generation_of(view, server.id)
    theirs = () if migration is None else held_now(view, migration.id)
    if not is_forced and rules.policy == "fail":
        refused = _refuse(view, server, migration, now, theirs, rules, asked, released, now_s)
        if refused is not None:
            return refused
    is_taken_as_it_is = is_forced or rules.policy == "retry"
    kept = () if is_taken_as_it_is else minus(now, minus(server.held, server.kept))
    return ServerHoldings(now, kept, generation, _find_migration_claim(view, migration, theirs, released))


def _find_migration_claim(
    view: View, migration: Migration | None, now: Held, released: Collection[str]
) -> ClaimSnapshot:
    if migration is None:
        return ClaimSnapshot((), None)
    if not now and "migration" not in released:
        # Its allocations are gone, and the server is to get them back: they are claimed again.
        return ClaimSnapshot(migration.held, None)
    return ClaimSnapshot(now, generation_of(view, migration.id))


def _refuse(
    view: View,
    server: Server,
    migration: Migration | None,
    now: Held,
    theirs: Held,
    rules: ConflictRules,
    asked: str,
    released: Collection[str],
    now_s: int,
) -> Enact | ServerChangedByOthers | None:
    """The refusal of a conflict that was not reported yet; None where there is nothing to refuse."""
    found = []
    if differs(now, server.held, is_released="server" in released):
        found.append(describe_difference(now, server.held))
    if migration is not None and differs(theirs, migration.held, is_released="migration" in released):
        found.append(f"of its migration: {describe_difference(theirs, migration.held)}")
    if not found:
        return None
    known = server.conflict
    is_known = known is not None and same(known.held, now) and same(known.migration_held, theirs)
    if is_known and rules.repeat == "merge":
        return None
    refused = ServerChangedByOthers(server.id, asked, "; ".join(found), rules.repeat == "merge")
    if is_known:
        return refused
    conflict = FoundConflict(held=now, migration_held=theirs, asked=asked, at_s=now_s)
    after = msgspec.structs.replace(server, conflict=conflict)
    return Enact((RecordChanged(server, after),), refused=refused)


def adopt_holdings(server: Server, holdings: ServerHoldings) -> Server:
    """The server's record with what it holds now: a conflict is settled by it."""
    return msgspec.structs.replace(
        server, held=holdings.held, kept=holdings.kept, generation=holdings.generation, conflict=None
    )


def adopt_migration_holdings(migration: Migration, holdings: ServerHoldings) -> Migration:
    claim = holdings.migration
    return msgspec.structs.replace(migration, held=claim.held, generation=claim.generation)
