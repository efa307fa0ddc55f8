"""The agents of a cell: who may speak for a host, which credential it has, and what of its tree it owns.

    unknown --(join token and a new credential)--> joined --(its credential)--> registers, polls, reports
    joined --(an operator)--> revoked --(an operator)--> readmitted: it may join again, with a new credential

Only a caller with the host's own credential may speak for a host. A new host joins: its agent
sends the cell's join token with the credential that it has made, and that is the host's from then on.

An agent that speaks version 1 of the protocol has no credential. It is accepted with the join token for a
host that registered in that version, until the host's agent sends a credential; it cannot join.
"""

import hmac
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from berth.cell import protocol
from berth.ledger import replace_record
from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.formats import ADDED
from berth.model.rejections import RecordMoved
from berth.model.saga_runs import Agent, HostTree, OwnedProvider
from berth.runtime.secrets import digest_of, is_secret_of
from berth.view import View

HOSTS_MAX: Final = 100_000
"""How many hosts a cell may have."""
_CREDENTIAL: Final = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):([A-Za-z0-9_-]{32,128})\Z")
_VERSION: Final = re.compile(r"[1-9][0-9]{0,5}\Z")

# -- callers ------------------------------------------------------------------------------------


class NotAllowed(Exception):
    """The caller may not do this. The message is for the operator of the agent."""


class AgentCaller(NamedTuple):
    """What a caller sends. ``may_join``: its join token is the cell's, or the cell has none."""

    version: int
    may_join: bool
    host: str | None = None
    secret: str | None = None

    @property
    def digest(self) -> str | None:
        return None if self.secret is None else digest_of(self.secret)


def read_caller(headers: Mapping[str, str], join_token: str | None) -> AgentCaller:
    token = headers.get(protocol.TOKEN_HEADER, "")
    may_join = join_token is None or hmac.compare_digest(token.encode(), join_token.encode())
    version = headers.get(protocol.VERSION_HEADER, "1")
    if _VERSION.match(version) is None:
        raise NotAllowed(f"X-Agent-Version is {version[:20]!r}; it must be 1 or more.")
    credential = headers.get(protocol.CREDENTIAL_HEADER)
    if credential is None:
        return AgentCaller(int(version), may_join)
    found = _CREDENTIAL.match(credential)
    if found is None:
        raise NotAllowed("X-Agent-Credential must be HOST:SECRET, with the host's uuid.")
    return AgentCaller(int(version), may_join, found[1], found[2])


def check_before_body(caller: AgentCaller, agent: Agent | None) -> None:
    """Refuse a caller whose body need not be read. ``agent``: the agent of the host
    whose credential is sent."""
    if agent is not None and agent.is_revoked:
        raise NotAllowed(
            f"The credential of the host {agent.name} was revoked: 'berth agent readmit' lets it join again."
        )
    if agent is not None and agent.credential is not None:
        if caller.secret is None or not is_secret_of(caller.secret, agent.credential):
            raise NotAllowed(
                f"The credential of the host {agent.name} is wrong. If it is lost: 'berth agent readmit'."
            )
    elif not caller.may_join:
        raise NotAllowed("An unknown host must send the cell's join token in X-Agent-Token.")


def check_host(caller: AgentCaller, host: str, agent: Agent | None) -> None:
    """Refuse a caller that speaks for another host than its own. ``agent``: the agent of ``host``."""
    if caller.host is not None:
        if caller.host != host:
            raise NotAllowed(f"This credential belongs to host {caller.host}, not to {host}.")
    elif agent is None:
        raise NotAllowed(
            "A host must send a credential of its own in X-Agent-Credential to join: upgrade its agent."
        )
    elif agent.protocol >= protocol.WITH_CREDENTIALS or agent.credential is not None or agent.is_revoked:
        raise NotAllowed(f"The host {agent.name} has a credential: send it in X-Agent-Credential.")


# -- records ------------------------------------------------------------------------------------


def explain_refusal(view: View, agent: Agent) -> str | None:
    """Why a host cannot be registered like this; None if it can."""
    known = view.records.get(Agent, agent.id)
    if known is None:
        namesakes = view.records.find(Agent, "name", agent.name)
        if namesakes:
            return f"The name {agent.name} is taken: host {namesakes[0].id} of this cell has it."
        if view.records.count(Agent) >= HOSTS_MAX:
            return f"The cell has {HOSTS_MAX} hosts, which is the limit."
        return None
    if known.is_revoked:
        return f"The credential of the host {known.name} was revoked."
    if known.credential not in (None, agent.credential):
        return f"The host {known.name} has another credential."
    return None


def register_agent(
    view: View, agent: Agent, reported: tuple[OwnedProvider, ...]
) -> Enact | RecordMoved | None:
    """The command that records a host, and that its agent owns what it reports; None where all of that is
    known."""
    if explain_refusal(view, agent) is not None:
        return RecordMoved("Agent", agent.id)
    known = view.records.get(Agent, agent.id)
    if known is not None:
        # A name that another host has is not taken over: the host keeps its own.
        others = [other for other in view.records.find(Agent, "name", agent.name) if other.id != agent.id]
        agent = msgspec.structs.replace(
            agent,
            name=known.name if others else agent.name,
            is_down=known.is_down,
            registered_at_s=known.registered_at_s,
            changed_at_s=known.changed_at_s,
            complaints=known.complaints,
            units_gone=known.units_gone,
            heard_at_s=known.heard_at_s,
        )
    return _record_tree(view, agent, _merge_trees(find_tree(view, agent.id), reported))


def _record_tree(view: View, agent: Agent, providers: tuple[OwnedProvider, ...]) -> Enact | None:
    """The command that records a host and its tree; the host says which classes of the tree have units."""
    named = tuple((one.id, tuple(one.units)) for one in providers if one.units)
    records = (
        msgspec.structs.replace(agent, unit_classes=named),
        HostTree(id=agent.id, providers=providers),
    )
    changed = [record for record in records if view.records.current(record) != record]
    return Enact(tuple(replace_record(view, record) for record in changed)) if changed else None


def _merge_trees(
    before: tuple[OwnedProvider, ...], reported: tuple[OwnedProvider, ...]
) -> tuple[OwnedProvider, ...]:
    """What an agent owns once it has reported this, until it is known what could be written of it. What it
    had reported before stays as it was: an operator's changes are recognised by the difference."""
    known = {provider.id: provider for provider in before}
    now = {provider.id for provider in reported}
    claimed = [_merge(known.get(provider.id), provider) for provider in reported]
    return (*claimed, *(provider for provider in before if provider.id not in now))


def _merge(before: OwnedProvider | None, reported: OwnedProvider) -> OwnedProvider:
    if before is None:
        return reported
    return msgspec.structs.replace(
        before,
        inventories={**reported.inventories, **before.inventories},
        traits=tuple(sorted({*before.traits, *reported.traits})),
        units={**before.units, **reported.units},
        siblings=reported.siblings,
    )


def find_tree(view: View, host: str) -> tuple[OwnedProvider, ...]:
    """What of a host's tree its agent owns."""
    tree = view.records.get(HostTree, host)
    return () if tree is None else tree.providers


def record_report(
    view: View,
    host: str,
    complaints: tuple[str, ...],
    providers: tuple[OwnedProvider, ...] | None = None,
    units_gone: tuple[str, ...] | None = None,
) -> Enact | None:
    """The command that records what could not be written for a host, what its agent owns now, and which units
    in use are gone. ``providers`` or ``units_gone`` None: as before."""
    agent = view.records.get(Agent, host)
    if agent is None:
        return None
    own = find_tree(view, host) if providers is None else providers
    if units_gone is None or view.format < ADDED["Agent.units_gone"]:
        units_gone = agent.units_gone
    after = msgspec.structs.replace(agent, complaints=complaints, units_gone=units_gone)
    return _record_tree(view, after, own)


def record_withheld(view: View, host: str, provider: OwnedProvider) -> Enact | None:
    """The command that records what is being withheld of one provider of a host's tree."""
    own = tuple(provider if known.id == provider.id else known for known in find_tree(view, host))
    return (
        None
        if own == find_tree(view, host)
        else Enact((replace_record(view, HostTree(id=host, providers=own)),))
    )


# -- credentials --------------------------------------------------------------------------------


def rotate_credential(view: View, host: str, digest: str) -> Enact | None:
    """The command that replaces a host's credential."""
    return _change_credential(view, host, credential=digest, is_revoked=False)


def revoke_agent(view: View, host: str) -> Enact | None:
    """The command that revokes a host's credential: its agent is refused."""
    return _change_credential(view, host, credential=None, is_revoked=True)


def readmit_agent(view: View, host: str) -> Enact | None:
    """The command that lets a host join again, with a new credential."""
    return _change_credential(view, host, credential=None, is_revoked=False)


def _change_credential(view: View, host: str, *, credential: str | None, is_revoked: bool) -> Enact | None:
    agent = view.records.get(Agent, host)
    if agent is None:
        return None
    after = msgspec.structs.replace(agent, credential=credential, is_revoked=is_revoked)
    return None if after == agent else Enact((RecordChanged(agent, after),))


def find_agent(view: View, name_or_id: str) -> Agent | None:
    """The agent of a host, by the host's id or name."""
    found = view.records.find(Agent, "name", name_or_id)
    return view.records.get(Agent, name_or_id) or (found[0] if found else None)
