"""The agents of a cell: who may speak for a host, and what of its tree is the agent's own.

    unknown --(join token and a new credential)--> joined --(its credential)--> registers, polls, reports
    joined --(an operator)--> revoked --(an operator)--> readmitted: it may join again, with a new credential

A host that registered before there were credentials has none, and is known by the join token alone until its
agent shows one.
"""

from typing import Final

import msgspec

from berth.ledger.records import replace_record
from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.rejections import RecordMoved
from berth.model.saga_runs import Agent, HostTree, OwnedProvider
from berth.view import View

HOSTS_MAX: Final = 100_000
"""In one cell."""


def explain_refusal(view: View, agent: Agent) -> str | None:
    """Why a host cannot be registered like this; None if it can."""
    known = view.records.get(Agent, agent.id)
    if known is None:
        namesakes = view.records.find(Agent, "name", agent.name)
        if namesakes:
            return f"The name {agent.name} is taken: the host {namesakes[0].id} of this cell has it."
        if view.records.count(Agent) >= HOSTS_MAX:
            return f"The cell has {HOSTS_MAX} hosts, and may have no more."
        return None
    if known.is_revoked:
        return f"The credential of the host {known.name} was revoked."
    if known.credential not in (None, agent.credential):
        return f"The host {known.name} has another credential."
    return None


def register_agent(
    view: View, agent: Agent, reported: tuple[OwnedProvider, ...]
) -> Enact | RecordMoved | None:
    """The command that notes a host, and that what it reports is its own; None where all of that is known."""
    if explain_refusal(view, agent) is not None:
        return RecordMoved("Agent", agent.id)
    known = view.records.get(Agent, agent.id)
    if known is not None:
        # Another's name is not taken over: the host goes on under its own.
        others = [other for other in view.records.find(Agent, "name", agent.name) if other.id != agent.id]
        agent = msgspec.structs.replace(
            agent,
            name=known.name if others else agent.name,
            is_down=known.is_down,
            registered_at_s=known.registered_at_s,
            changed_at_s=known.changed_at_s,
            complaints=known.complaints,
        )
    tree = HostTree(id=agent.id, providers=_claimed(find_tree(view, agent.id), reported))
    changed = [record for record in (agent, tree) if view.records.current(record) != record]
    return Enact(tuple(replace_record(view, record) for record in changed)) if changed else None


def _claimed(
    before: tuple[OwnedProvider, ...], reported: tuple[OwnedProvider, ...]
) -> tuple[OwnedProvider, ...]:
    """What an agent owns once it has reported this, until it is known what could be written of it. What it
    had reported before stays as it was: that is what an operator's changes are told by."""
    known = {provider.id: provider for provider in before}
    now = {provider.id for provider in reported}
    claimed = [_joined(known.get(provider.id), provider) for provider in reported]
    return (*claimed, *(provider for provider in before if provider.id not in now))


def _joined(before: OwnedProvider | None, reported: OwnedProvider) -> OwnedProvider:
    if before is None:
        return reported
    return msgspec.structs.replace(
        before,
        inventories={**reported.inventories, **before.inventories},
        traits=tuple(sorted({*before.traits, *reported.traits})),
    )


def find_tree(view: View, host: str) -> tuple[OwnedProvider, ...]:
    """What is known to be the agent's own of a host's tree."""
    tree = view.records.get(HostTree, host)
    return () if tree is None else tree.providers


def record_report(
    view: View, host: str, complaints: tuple[str, ...], providers: tuple[OwnedProvider, ...] | None = None
) -> Enact | None:
    """The command that notes what could not be written for a host, and what is its agent's own now: None, as
    before."""
    agent = view.records.get(Agent, host)
    if agent is None:
        return None
    own = find_tree(view, host) if providers is None else providers
    after = (msgspec.structs.replace(agent, complaints=complaints), HostTree(id=host, providers=own))
    changed = [record for record in after if view.records.current(record) != record]
    return Enact(tuple(replace_record(view, record) for record in changed)) if changed else None


def record_withheld(view: View, host: str, provider: OwnedProvider) -> Enact | None:
    """The command that notes what is being withheld of one provider of a host's tree."""
    own = tuple(provider if known.id == provider.id else known for known in find_tree(view, host))
    return (
        None
        if own == find_tree(view, host)
        else Enact((replace_record(view, HostTree(id=host, providers=own)),))
    )


# -- credentials --------------------------------------------------------------------------------


def rotate_credential(view: View, host: str, digest: str) -> Enact | None:
    """The command that gives a host another credential."""
    return _changed(view, host, credential=digest, is_revoked=False)


def revoke_agent(view: View, host: str) -> Enact | None:
    """The command that shuts a host's agent out."""
    return _changed(view, host, credential=None, is_revoked=True)


def readmit_agent(view: View, host: str) -> Enact | None:
    """The command that has a host join again, with whatever credential it shows then."""
    return _changed(view, host, credential=None, is_revoked=False)


def _changed(view: View, host: str, *, credential: str | None, is_revoked: bool) -> Enact | None:
    agent = view.records.get(Agent, host)
    if agent is None:
        return None
    after = msgspec.structs.replace(agent, credential=credential, is_revoked=is_revoked)
    return None if after == agent else Enact((RecordChanged(agent, after),))


def find_agent(view: View, name_or_id: str) -> Agent | None:
    """The agent of a host, by the host's id or name."""
    found = view.records.find(Agent, "name", name_or_id)
    return view.records.get(Agent, name_or_id) or (found[0] if found else None)
