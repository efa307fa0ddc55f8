"""Somebody else has changed what a server holds: what then.

A server's record says what it last wrote. The difference to what is held now is what others have added (a
port's bandwidth, an accelerator). **fail**: the change is refused. **retry**: what there is now is taken for
what the server had, and the change goes on. **merge**: the same, and what others have added is kept by the
server, in this change and in those that follow (``Server.kept``), until somebody asks with **retry**.
"""

from collections.abc import Iterable

from berth.model.consumer import Holdings
from berth.model.ids import ConsumerId, ProviderId
from berth.model.orders import Way
from berth.model.rejections import Rejection, ServerChangedByOthers
from berth.model.servers import ConflictPolicy, Held, Server
from berth.view import View


def held_now(view: View, consumer: str) -> Held:
    record = view.consumers.get(ConsumerId(consumer))
    return () if record is None else named(view, record.held)


def named(view: View, held: Holdings) -> Held:
    name_of = view.classes.name_of
    return tuple((provider, tuple((name_of(id), n) for id, n in amounts)) for provider, amounts in held)


def as_dict(held: Held) -> dict[str, dict[str, int]]:
    return {provider: dict(amounts) for provider, amounts in held}


def as_held(amounts: dict[str, dict[str, int]]) -> Held:
    """Without what is nothing."""
    found = ((id, tuple((name, n) for name, n in here.items() if n > 0)) for id, here in amounts.items())
    return tuple((ProviderId(id), here) for id, here in found if here)


def same(one: Held, other: Held) -> bool:
    return as_dict(one) == as_dict(other)


def added(now: Held, last: Held) -> Held:
    """What is held now beyond what was last written."""
    before = as_dict(last)
    return as_held(
        {
            id: {name: n - before.get(id, {}).get(name, 0) for name, n in here.items()}
            for id, here in as_dict(now).items()
        }
    )


def plus(parts: Iterable[Held]) -> Held:
    total: dict[str, dict[str, int]] = {}
    for part in parts:
        for id, amounts in part:
            here = total.setdefault(id, {})
            for name, n in amounts:
                here[name] = here.get(name, 0) + n
    return as_held(total)


def minus(one: Held, other: Held) -> Held:
    return added(one, other)


def with_kept(way: Way, kept: Held) -> Way:
    """A way on which a server also has what others have added."""
    return Way(way.place, plus((way.held, kept)), way.needs) if kept else way


class Standing:
    """What a server holds at the moment an operation begins: ``own`` goes with it, ``kept`` stays whatever it
    does."""

    __slots__ = ("generation", "kept", "own")

    def __init__(self, own: Held, kept: Held, generation: int | None) -> None:
        self.own = own
        self.kept = kept
        self.generation = generation


def standing(
    view: View, server: Server, policy: ConflictPolicy, asked: str, *, is_forced: bool = False
) -> Standing | Rejection:
    """What a server holds, by the policy for those who have changed it meanwhile."""
    record = view.consumers.get(ConsumerId(server.id))
    generation = record.consumer.generation if record is not None else None
    now = held_now(view, server.id)
    if is_forced or policy == "retry" or (not now and not server.held):
        return Standing(now, (), generation)
    if generation == server.generation:
        return Standing(minus(now, server.kept), server.kept, generation)
    if policy == "merge":
        kept = added(now, minus(server.held, server.kept))
        return Standing(minus(now, kept), kept, generation)
    return ServerChangedByOthers(server.id, asked, generation, server.generation)
