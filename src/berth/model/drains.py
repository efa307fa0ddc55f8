"""Drains: hosts that their servers are to leave, one after the other."""

from typing import Final, Literal

import msgspec

from berth.model.servers import Record

MOVES_MAX: Final = 1_000
"""How many servers a host may have when its drain begins."""

DrainState = Literal["draining", "done"]


class DrainMove(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A server that is to leave. ``dest`` is the host that the plan had for it. ``run`` is the saga run that
    was begun for it and is not known to have ended, ``migration`` the migration of a server that was moved
    while it was stopped: it is confirmed for it. After an attempt that failed, ``text`` says why, and
    ``again_at_s`` when the next will be."""

    server: str
    dest: str | None = None
    run: str | None = None
    migration: str | None = None
    attempts: int = 0
    again_at_s: int = 0
    text: str | None = None


class Drain(Record, frozen=True, kw_only=True, tag="drain"):
    """``id`` is the host's. ``moves`` are the servers that have not left yet, ``moved`` counts those that
    have. ``left`` are the last of these: one that comes back is not counted any more."""

    name: str
    project: str
    user: str
    request_id: str
    state: DrainState = "draining"
    moves: tuple[DrainMove, ...] = ()
    moved: int = 0
    left: tuple[str, ...] = ()
    created_at_s: int = 0
    updated_at_s: int = 0
