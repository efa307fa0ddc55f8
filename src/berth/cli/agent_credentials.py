"""``berth agent rotate``, ``revoke`` and ``readmit``: the credentials of hosts.

A rotation asks the conductor on behalf of each host: it needs the folder of the agents. Revoking and
readmitting need the cell's database; a running conductor follows at once.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable
from typing import Final

from berth.agent.conductor import ConductorClient, ConductorRefuses, ConductorUnreachable
from berth.agent.credentials import Credential, hosts_with_credentials, kept_credential, rotate
from berth.agent.state import StateError
from berth.cell import agents
from berth.cell.journal import open_cell_engine
from berth.cli.command import CommandError, format_value
from berth.client import Client
from berth.engine import Unavailable
from berth.engine.engine import Overloaded
from berth.journal import AddressError, JournalError
from berth.model.commands import Enact
from berth.model.events import Origin
from berth.model.saga_runs import Agent
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids
from berth.view import View

_ORIGIN: Final = Origin("", "operator", None, "berth agent")


def run(arguments: argparse.Namespace) -> int:
    """The exit status: 0 when all is done, 2 when a host failed."""
    try:
        match arguments.action:
            case "rotate":
                return asyncio.run(_rotate(arguments))
            case "revoke":
                agent = asyncio.run(_change(arguments, agents.revoke_agent))
                print(f"{agent.name} is revoked. It is reported down after the heartbeat timeout")
            case _:
                agent = asyncio.run(_change(arguments, agents.readmit_agent))
                print(f"{agent.name} may join again, with the join token of its cell")
        return 0
    except (AddressError, JournalError, Overloaded, StateError, Unavailable) as error:
        raise CommandError(str(error)) from error


# -- as a host ----------------------------------------------------------------------------------


async def _rotate(arguments: argparse.Namespace) -> int:
    """Rotate one after the other; a host that fails does not stop the others."""
    known = hosts_with_credentials(arguments.data)
    names = arguments.hosts_named or known
    if not names:
        raise CommandError(f"{arguments.data}: there are no credentials of hosts in it")
    failed = 0
    for name in names:
        try:
            credential = kept_credential(arguments.data, name) if name in known else None
            if credential is None:
                raise CommandError(f"{arguments.data} has no credential of this host")
            await _rotate_one(arguments, credential)
            print(f"{name} has a new credential")
        except (CommandError, ConductorUnreachable, ConductorRefuses, StateError) as error:
            failed += 1
            print(f"berth: {name}: {error}", file=sys.stderr)
    return 2 if failed else 0


async def _rotate_one(arguments: argparse.Namespace, credential: Credential) -> None:
    conductor = ConductorClient(Client(arguments.conductor, ca_file=arguments.ca_file))
    try:
        await rotate(credential, conductor)
    finally:
        await conductor.close()


# -- as an operator -----------------------------------------------------------------------------


async def _change(arguments: argparse.Namespace, make: Callable[[View, str], Enact | None]) -> Agent:
    """Change the record of a host's agent in the cell's journal; the agent before that."""
    database = arguments.database or os.environ.get("BERTH_DATABASE", "")
    if not database:
        raise CommandError("--database or BERTH_DATABASE must name the cell's database")
    engine = open_cell_engine(database, SystemClock(), Ids())
    try:
        await engine.start()
        agent = await engine.read(lambda view: agents.find_agent(view, arguments.host_named))
        if agent is None:
            raise CommandError(
                f"{format_value(database)}: no host {arguments.host_named} has registered in this cell"
            )
        await engine.submit(
            lambda view, _: make(view, agent.id),
            _ORIGIN,
            lambda view, changed: None,
        )
        return agent
    finally:
        await engine.stop()
