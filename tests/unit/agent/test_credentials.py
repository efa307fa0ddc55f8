"""The credential of a host: made once, kept by the agent, changed and revoked by operators; and releases of
agents and conductors that are not the same."""

import asyncio
import contextlib
import json
import re
import shlex
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from berth.agent.credentials import Credential, credential_path, hosts_with_credentials, kept_credential
from berth.agent.fleet import simulated_fleet
from berth.agent.process import AgentSettings, run_agents
from berth.agent.state import StateError
from berth.cell import protocol
from berth.cell.application import Cell, CellSettings, Edges, edges_of
from berth.cell.journal import open_cell_engine
from berth.cell.placement import VERSION
from berth.cli import main
from berth.client import connect_directly
from berth.engine import Engine
from berth.engine.engine import Observer
from berth.ledger import replace_record
from berth.model.commands import Enact
from berth.model.events import Origin
from berth.model.ids import Index
from berth.model.saga_runs import Agent, Instance, Spec
from berth.runtime.clock import SystemClock
from berth.runtime.ids import Ids
from berth.runtime.secrets import digest_of
from tests.servers import ROOT
from tests.unit.agent.conductors import (
    FLAVOR,
    PACE,
    QUICK,
    THE_HOST,
    AgentHost,
    FakeConductor,
    command,
    served,
    server_id,
)
from tests.worlds import ApplicationWorld

GUIDE: Final = ROOT / "docs" / "guides" / "agent-credentials.md"
TOKEN: Final = "the-join-token-of-the-cell"
HEARTBEAT_TIMEOUT_S: Final = 1.0
ORIGIN: Final = Origin("req-1", "test", None, "test")


# -- the file -----------------------------------------------------------------------------------


def test_a_credential_is_made_once(tmp_path: Path) -> None:
    first = Credential(tmp_path, "h", server_id(1))
    name, shown = first.header()
    assert name == "x-agent-credential"
    assert re.fullmatch(rf"{server_id(1)}:[A-Za-z0-9_-]{{43}}", shown)
    assert Credential(tmp_path, "h", server_id(1)).header() == (name, shown)
    assert not first.take_other()
    assert Credential(tmp_path, "i", server_id(2)).header() != (name, shown)
    assert hosts_with_credentials(tmp_path) == ["h", "i"]
    assert hosts_with_credentials(tmp_path / "none") == []


def test_a_change_that_is_cut_short_anywhere_loses_nothing(tmp_path: Path) -> None:
    agent = Credential(tmp_path, "h", server_id(1))
    old = agent.header()[1].partition(":")[2]
    new = Credential(tmp_path, "h", server_id(1)).propose()
    # Cut short here: whoever begins again proposes the same, and the agent has both to show.
    again = kept_credential(tmp_path, "h")
    assert again is not None
    assert again.propose() == new
    assert hosts_with_credentials(tmp_path) == ["h"]
    assert agent.take_other()
    assert agent.header()[1].endswith(new)
    assert agent.take_other(), "it may be the old one after all"
    assert agent.header()[1].endswith(old)
    again.accept(new)
    assert agent.take_other()
    assert agent.header()[1].endswith(new)
    assert not agent.take_other()
    assert [path.name for path in (tmp_path / "credentials").iterdir()] == ["h"]


def test_a_file_that_is_no_credential_is_refused(tmp_path: Path) -> None:
    path = credential_path(tmp_path, "h")
    path.parent.mkdir()
    path.write_text("nonsense")
    with pytest.raises(StateError, match="this is not a credential"):
        Credential(tmp_path, "h", server_id(1)).header()
    path.write_text(f"{server_id(2)}:{'s' * 43}")
    with pytest.raises(StateError, match=f"the credential of the host {server_id(2)}"):
        Credential(tmp_path, "h", server_id(1)).header()
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="the credential cannot be"):
        Credential(tmp_path / "file", "h", server_id(1)).header()


# -- agents that run ----------------------------------------------------------------------------


class CellWorld:
    """A cell on a file of its own, with Placement in the same process. ``engine`` is another way into its
    journal than ``conductor``."""

    def __init__(self, cell: Cell, engine: Engine, conductor: Engine) -> None:
        self.cell = cell
        self.engine = engine
        self.conductor = conductor


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[CellWorld]:
    settings = CellSettings(
        name="cell1",
        database=f"sqlite:///{folder / 'cell1'}.db",
        placement="http://direct",
        placement_token=lambda: "admin",
        agent_token=TOKEN,
        heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_S,
    )
    async with ApplicationWorld(folder).running() as placement:
        headers = {"x-auth-token": "admin", "openstack-api-version": VERSION}
        client = connect_directly(placement.application, headers)
        opened: list[Engine] = []

        def edges(given: CellSettings) -> Edges:
            real = edges_of(given)

            async def open_engine(observer: Observer) -> Engine:
                opened.append(await real.open_engine(observer))
                return opened[0]

            return real._replace(client=client, open_engine=open_engine)

        cell = Cell(settings, edges)
        async with cell.running():
            engine = open_cell_engine(settings.database, SystemClock(), Ids())
            await engine.start()
            try:
                yield CellWorld(cell, engine, opened[0])
            finally:
                await engine.stop()


class RunningFleet:
    """Hosts of a cell whose agents run in this process, each with its own file, and the cell's address."""

    def __init__(self, world: CellWorld, url: str, data: Path) -> None:
        self.world = world
        self.url = url
        self.data = data
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, token: str | None = None) -> None:
        settings = AgentSettings(
            conductor=self.url,
            data=self.data / "agents",
            hosts=tuple(simulated_fleet(2)),
            token=token,
            behaviour=QUICK,
            pace=PACE,
        )
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(run_agents(settings, self._stop))

    async def stop(self) -> None:
        self._stop.set()
        if self._task is not None:
            await self._task

    async def are_up(self, *names: str) -> None:
        await self._until(lambda agents: {one.name for one in agents if not one.is_down} == set(names))

    async def _until(self, holds: Callable[[list[Agent]], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds(await self.world.engine.read(lambda view: list(view.records.all(Agent)))):
                await asyncio.sleep(0.02)

    async def berth(self, words: str) -> str:
        """Run a command as the guide has it, in this fleet's world."""
        given = words.replace("sqlite:///data/", f"sqlite:///{self.data}/").replace(
            "data/agents", f"{self.data}/agents"
        )
        given = re.sub(r"http://127\.0\.0\.1:\d+", self.url, given)
        assert await asyncio.to_thread(main, shlex.split(given)) == 0, given
        return given


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[RunningFleet]:
    async with running(tmp_path) as world, served(world.cell) as url:
        fleet = RunningFleet(world, url, tmp_path)
        fleet.start(TOKEN)
        try:
            await fleet.are_up("host-0001", "host-0002")
            yield fleet
        finally:
            await fleet.stop()


def guide_commands(heading: str) -> list[str]:
    """The commands of a section of the guide, without the word berth."""
    text = GUIDE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^    berth (agent (?:rotate|revoke|readmit) .*)$", text, re.MULTILINE)
    assert found, heading
    return found


async def test_agents_keep_their_credentials_to_themselves(fleet: RunningFleet, tmp_path: Path) -> None:
    files = sorted((tmp_path / "agents" / "credentials").iterdir())
    assert [path.name for path in files] == ["host-0001", "host-0002"]
    assert len({path.read_text() for path in files}) == 2
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(files[0].parent.stat().st_mode) == 0o700


async def test_credentials_are_rotated_while_agents_run(fleet: RunningFleet, tmp_path: Path) -> None:
    path = credential_path(tmp_path / "agents", "host-0001")
    before = path.read_text()
    for words in guide_commands("Rotate a credential"):
        await fleet.berth(words)
    assert path.read_text() != before
    # Longer than it takes to be down: the agents have found the new ones.
    await asyncio.sleep(1.5 * HEARTBEAT_TIMEOUT_S)
    await fleet.are_up("host-0001", "host-0002")
    await fleet.stop()
    fleet.start()
    await fleet.are_up("host-0001", "host-0002")


async def test_an_answer_that_is_lost_leaves_nobody_without_a_credential(
    fleet: RunningFleet, tmp_path: Path
) -> None:
    kept = kept_credential(tmp_path / "agents", "host-0001")
    assert kept is not None
    # The conductor has taken it, and whoever asked was killed before it knew.
    digest = digest_of(kept.propose())
    await write(fleet.world, kept.id, credential=digest)
    await asyncio.sleep(1.5 * HEARTBEAT_TIMEOUT_S)
    await fleet.are_up("host-0001", "host-0002")
    await fleet.berth(f"agent rotate host-0001 --data data/agents --conductor {fleet.url}")
    assert sorted(path.name for path in (tmp_path / "agents" / "credentials").iterdir()) == [
        "host-0001",
        "host-0002",
    ]


async def test_a_host_that_is_revoked_is_shut_out_until_it_is_readmitted(
    fleet: RunningFleet, tmp_path: Path
) -> None:
    for words in guide_commands("Revoke a host"):
        await fleet.berth(words)
    await fleet.are_up("host-0002")
    # It has the join token, and that does not help it.
    await fleet.stop()
    credential_path(tmp_path / "agents", "host-0001").unlink()
    fleet.start(TOKEN)
    await asyncio.sleep(1.5 * HEARTBEAT_TIMEOUT_S)
    await fleet.are_up("host-0002")
    for words in guide_commands("Readmit a host"):
        await fleet.berth(words)
    await fleet.are_up("host-0001", "host-0002")


async def test_a_host_whose_folder_is_lost_joins_again(fleet: RunningFleet, tmp_path: Path) -> None:
    await fleet.stop()
    credential_path(tmp_path / "agents", "host-0001").unlink()
    fleet.start(TOKEN)
    await fleet.are_up("host-0002")
    for words in guide_commands("Readmit a host"):
        await fleet.berth(words)
    await fleet.are_up("host-0001", "host-0002")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("agent revoke h", "--database or BERTH_DATABASE must name the cell's database"),
        ("agent revoke h --database sqlite:///{data}/c.db", "no host h has registered in this cell"),
        ("agent readmit h --database nonsense", "a URL is expected"),
        ("agent rotate --data {data} --conductor http://127.0.0.1:1", "there are no credentials of hosts in"),
        (
            "agent rotate h --data {data} --conductor http://127.0.0.1:1",
            "h: {data} has no credential of this host",
        ),
        ("agent --driver sim", "--conductor, --data must be given"),
    ],
)
def test_a_command_that_cannot_be_done_says_why(
    words: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BERTH_DATABASE", raising=False)
    assert main(words.format(data=tmp_path).split()) == 2
    assert why.format(data=tmp_path) in capsys.readouterr().err


# -- releases that are not the same -------------------------------------------------------------
# The messages of version 1, as its release had them: what is not known is refused.


class _V1(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class V1Provider(_V1, kw_only=True):
    id: str
    name: str
    parent: str | None = None
    inventories: dict[str, dict[str, Any]] = {}
    traits: tuple[str, ...] = ()


class V1Register(_V1, kw_only=True):
    host: str
    name: str
    driver: str
    providers: tuple[V1Provider, ...]
    aggregates: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()


class V1Registered(_V1, kw_only=True):
    cell: str
    silence_seconds: float


class V1Poll(_V1, kw_only=True):
    host: str
    servers: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    wait_seconds: float = 0


class V1Command(_V1, kw_only=True):
    id: str
    fence: tuple[int, int]
    verb: str
    server: str
    spec: Spec
    runs: bool = True
    to_host: str | None = None


class V1Leftover(_V1, kw_only=True):
    server: str
    fence: tuple[int, int]


class V1Commands(_V1, kw_only=True):
    orders: tuple[V1Command, ...] = ()
    aborts: tuple[str, ...] = ()
    strays: tuple[V1Leftover, ...] = ()


class V1Report(_V1, kw_only=True):
    host: str
    order: str
    error: str | None = None


class V1Conductor(FakeConductor):
    """A conductor of version 1: it refuses what it does not know."""

    KINDS: Final = {
        protocol.REGISTER: V1Register,
        protocol.POLL: V1Poll,
        protocol.REPORT: V1Report,
    }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        assert not message.get("more_body")
        msgspec.json.decode(message["body"], type=self.KINDS[scope["path"]])

        async def again() -> Any:
            return message

        await super().__call__(scope, again, send)


async def test_an_agent_works_with_a_conductor_of_the_release_before(tmp_path: Path) -> None:
    conductor = V1Conductor()
    async with served(conductor) as url:
        host = AgentHost(tmp_path, url)
        host.start()
        assert await conductor.have(command("build")) is None
        await host.kill()


class NewerCommand(protocol.AgentCommand, frozen=True, kw_only=True):
    colour: str = "green"


class NewerConductor(FakeConductor):
    """A conductor of a version to come: it says more than anybody knows."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def more(message: Any) -> None:
            if message["type"] == "http.response.body":
                said = json.loads(message["body"])
                message = {**message, "body": json.dumps({**said, "mood": {"good": [True]}}).encode()}
            await send(message)

        await super().__call__(scope, receive, more)


async def test_an_agent_works_with_a_conductor_of_a_release_to_come(tmp_path: Path) -> None:
    conductor = NewerConductor()
    async with served(conductor) as url:
        host = AgentHost(tmp_path, url)
        host.start()
        newer = NewerCommand(
            id="a",
            fence=(1, 0),
            verb="teleport",
            server=server_id(1),
            spec=Spec("web-1", "project", "user", FLAVOR),
        )
        refused = await conductor.have(newer)
        assert refused == "teleport is not known to this release of the agent: upgrade it"
        known = msgspec.structs.replace(newer, id="b", verb="build", server=server_id(2))
        assert await conductor.have(known) is None
        assert host.state.disk == {server_id(2): "running"}
        await host.kill()


async def write(world: CellWorld, id: str, **fields: Any) -> None:
    """Change the record of an agent in the cell's journal."""

    known = await world.engine.read(lambda view: view.records.get(Agent, id))
    before = known or Agent(id=id, name="host-0001", driver="sim", is_down=True)
    await write_record(world, msgspec.structs.replace(before, **fields))


async def write_record(world: CellWorld, record: Agent | Instance) -> None:
    def propose(view: Any, now_s: int) -> Enact:
        return Enact((replace_record(view, record),))

    await world.engine.submit(propose, ORIGIN, lambda view, changed: None)
    index = await world.engine.read(lambda view: view.index)
    await world.conductor.wait_beyond(Index(index - 1), 10)


async def until_agent(world: CellWorld, holds: Callable[[Agent], bool]) -> None:
    """Wait until something holds of the host's agent, as the cell knows it."""
    async with asyncio.timeout(20):
        while True:
            agent = await world.engine.read(lambda view: view.records.get(Agent, THE_HOST.id))
            if agent is not None and holds(agent):
                return
            await asyncio.sleep(0.02)


V1_REGISTER: Final = {
    "host": THE_HOST.id,
    "name": THE_HOST.name,
    "driver": "sim",
    "providers": [
        {
            "id": THE_HOST.id,
            "name": THE_HOST.name,
            "parent": None,
            "inventories": {
                "VCPU": {
                    "total": 8,
                    "reserved": 0,
                    "min_unit": 1,
                    "max_unit": 8,
                    "step_size": 1,
                    "allocation_ratio": 4.0,
                }
            },
            "traits": ["COMPUTE_NODE"],
        }
    ],
    "aggregates": [],
    "servers": [],
}
"""What an agent of version 1 says."""


async def test_an_agent_of_the_release_before_is_heard_until_it_is_upgraded(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        cell = world.cell
        old = connect_directly(cell, {"x-agent-token": TOKEN})
        new = Credential(tmp_path, THE_HOST.name, THE_HOST.id).header()
        # A host that is new needs an agent that is.
        refused = await old.ask("POST", protocol.REGISTER, V1_REGISTER)
        assert (refused.status, "upgrade its agent" in refused.detail) == (401, True)
        # One that registered with the release before goes on; its agent understands every answer.
        await write(world, THE_HOST.id, name=THE_HOST.name)
        await write_record(world, Instance(id=server_id(1), last=1))
        poll = {"host": THE_HOST.id, "servers": [server_id(1)], "busy": [], "wait_seconds": 0.0}
        for _ in range(2):
            answer = await old.ask("POST", protocol.REGISTER, V1_REGISTER)
            assert answer.status == 200, answer.body
            msgspec.convert(answer.body, V1Registered)
            for _ in range(3):
                answer = await old.ask("POST", protocol.POLL, poll)
                assert msgspec.convert(answer.body, V1Commands).strays[0].server == server_id(1)
                await asyncio.sleep(0.6 * HEARTBEAT_TIMEOUT_S)
        report = {"host": THE_HOST.id, "order": "x", "error": None}
        assert (await old.ask("POST", protocol.REPORT, report)).status == 200
        await until_agent(
            world,
            lambda agent: (
                (agent.protocol, agent.credential) == (1, None) and "upgrade it" in agent.complaints[-1]
            ),
        )
        # Its agent is upgraded: nobody gets in with the token any more.
        upgraded = connect_directly(cell, {"x-agent-token": TOKEN, "x-agent-version": "2", new[0]: new[1]})
        assert (await upgraded.ask("POST", protocol.REGISTER, V1_REGISTER)).status == 200
        assert (await upgraded.ask("POST", protocol.POLL, poll)).status == 200
        for path, body in (
            (protocol.REGISTER, V1_REGISTER),
            (protocol.POLL, poll),
            (protocol.REPORT, report),
        ):
            assert (await old.ask("POST", path, body)).status == 401, path
        await until_agent(world, lambda agent: (agent.protocol, agent.complaints) == (2, ()))


async def test_an_agent_of_a_release_to_come_is_understood(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        shown = Credential(tmp_path, THE_HOST.name, THE_HOST.id).header()
        headers = {"x-agent-token": TOKEN, "x-agent-version": "3", shown[0]: shown[1]}
        newer = connect_directly(world.cell, headers)
        (root,) = V1_REGISTER["providers"]
        assert isinstance(root, dict)
        vcpu = {**root["inventories"]["VCPU"], "colour": "green"}
        host = {**root, "inventories": {"VCPU": vcpu}, "weight_kg": 12}
        body = {**V1_REGISTER, "providers": [host], "mood": {"good": [True]}}
        answer = await newer.ask("POST", protocol.REGISTER, body)
        assert answer.status == 200, answer.body
        assert answer.headers["x-agent-version"] == str(protocol.VERSION)
        poll = {"host": THE_HOST.id, "mood": "good"}
        assert (await newer.ask("POST", protocol.POLL, poll)).status == 200
        report = {"host": THE_HOST.id, "order": "x", "mood": "good"}
        assert (await newer.ask("POST", protocol.REPORT, report)).body == {"awaited": False}
        await until_agent(world, lambda agent: (agent.protocol, agent.complaints) == (3, ()))


async def test_a_host_is_asked_to_register_again_once_it_is_upgraded(tmp_path: Path) -> None:
    """The conductor was upgraded first, and the agent polls with a credential that nobody knows yet."""
    async with running(tmp_path) as world:
        await write(world, THE_HOST.id, name=THE_HOST.name)
        shown = Credential(tmp_path, THE_HOST.name, THE_HOST.id).header()
        headers = {"x-agent-token": TOKEN, "x-agent-version": "2", shown[0]: shown[1]}
        client = connect_directly(world.cell, headers)
        assert (await client.ask("POST", protocol.POLL, {"host": THE_HOST.id})).status == 404
