"""Plans on their way out and back: a dry run hands its plan out as a token, and keeps nothing.

A token holds the body of the request, which is read again as any body is, and what was chosen for each
member. It is no secret and gives no rights: who sends it needs the same permission as for any schedule, and
what it says was chosen must be what the request asks for, on providers that could serve it. A digest tells
one that was mangled on the way; one that was made up gets no further than a made-up request would.
"""

import base64
import binascii
from hashlib import blake2b
from typing import Final

import msgspec

from berth.api.kernel.codes import BAD_BODY
from berth.api.kernel.problem import Problem
from berth.api.native.schedule_requests import NewSchedule
from berth.model.ids import ConsumerId, Index, ProviderId
from berth.model.placement import SHARES_VIA_AGGREGATE, Wanted
from berth.model.scheduling import CandidatesRequest, HostCandidate, Placement, Plan, ScheduleRequest
from berth.view import View

_DIGEST_BYTES: Final = 12


class Chosen(msgspec.Struct, frozen=True, array_like=True):
    member: ConsumerId
    host: ProviderId
    wanted: tuple[Wanted, ...]


class Token(msgspec.Struct, frozen=True, array_like=True):
    """``asked`` is the request as it was sent, with its members named."""

    index: Index
    asked: NewSchedule
    chosen: tuple[Chosen, ...]


_DECODER: Final = msgspec.msgpack.Decoder(Token)


def make_token(plan: Plan, asked: NewSchedule) -> str:
    members = plan.request.members
    named = msgspec.structs.replace(asked, consumers=members, dry_run=False, explain=False)
    chosen = tuple(Chosen(one.member, one.chosen.host, one.chosen.wanted) for one in plan.placements)
    body = msgspec.msgpack.encode(Token(plan.index, named, chosen))
    return base64.urlsafe_b64encode(_digest(body) + body).decode()


def read_token(text: str) -> Token:
    try:
        content = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if digest != _digest(body):
            raise ValueError("the digest does not match")
        token = _DECODER.decode(body)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        words = (
            "The token is not one that a dry run gave out: it is incomplete, changed, or of another version."
        )
        raise Problem(400, words, BAD_BODY) from None
    if token.asked.token is not None:
        raise Problem(400, "The token is not one that a dry run gave out: it holds another.", BAD_BODY)
    return token


def read_plan(token: Token, request: ScheduleRequest, view: View) -> Plan | str:
    """The plan that a token says was made for the request; or what about it cannot be, or no longer."""
    members = [one.member for one in token.chosen]
    if not request.at_least <= len(members) <= len(request.members) or len(set(members)) < len(members):
        return "it does not place as many as were asked for"
    if not set(members) <= set(request.members):
        return "it places a member that was not asked for"
    placements = []
    for one in token.chosen:
        host = view.providers.get(one.host)
        if host is None or host.parent is not None:
            return f"host {one.host} is gone"
        objection = _find_objection(view, one, request.ask)
        if objection is not None:
            return objection
        placements.append(Placement(one.member, HostCandidate(one.host, host.name, one.wanted, ())))
    return Plan(request, tuple(placements), token.index)


def _find_objection(view: View, one: Chosen, ask: CandidatesRequest) -> str | None:
    """Why what was chosen for a member is not what it asked for, there."""
    if len(dict(one.wanted)) < len(one.wanted):
        return "it takes from a provider twice"
    sharing = view.rows_with_trait(SHARES_VIA_AGGREGATE)
    total: dict[str, int] = {}
    for provider, amounts in one.wanted:
        record = view.providers.get(provider)
        if record is None or (record.root.id != one.host and record.row not in sharing):
            return f"provider {provider} is not part of host {one.host}"
        if len(dict(amounts)) < len(amounts) or not amounts:
            return "it takes a resource class twice, or nothing"
        for name, amount in amounts:
            if amount < 1:
                return "it takes less than nothing"
            total[name] = total.get(name, 0) + amount
    asked: dict[str, int] = {}
    for group in ask.groups:
        for name, amount in group.resources:
            asked[name] = asked.get(name, 0) + amount
    return None if total == asked else "it takes something else than was asked for"


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()
