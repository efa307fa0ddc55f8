"""``ops/three-machines`` as processes: haproxy with TLS, three regions with two workers each on a database of
several nodes, two cells and their agents. One of each is killed, cut off or hangs, and comes back, while
clients write. What was acknowledged is there, and what is under way goes on.
"""

import contextlib
import itertools
import os
import shutil
import signal
import ssl
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
import yaml

from tests.databases.galera import Galera
from tests.databases.standby import Pair
from tests.ops.machines import OPS, UNITS, Machine, pick_network
from tests.packages import HAPROXY, PROMETHEUS, PackageMissing, require
from tests.servers import ServerProcess
from tests.waiting import WITHIN_S

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

EXAMPLES: Final = OPS / "three-machines"
CELLS: Final = {"cell1": 1, "cell2": 2}
"""The machine that each cell's conductor runs on. The third is there for both."""
SPARE: Final = 3
PROMETHEUS_FILE: Final = EXAMPLES / "prometheus.yml"
SHOWN: Final = {
    "berth": "berth_event_streams ",
    "berth-cell": 'berth_hosts{state="up"} ',
    "berth-agent": "berth_agent_hosts_registered ",
}
"""What the processes of a job say."""
HOSTS: Final = 8
WRITERS: Final = 3
PROGRESS: Final = 30
OPERATOR: Final = {"x-auth-token": "the-token-of-an-operator", "openstack-api-version": "placement 1.39"}


class Site:
    """The three machines, on a network of their own. ``url_of``: the address of a database, as the machine of
    a number is given it."""

    def __init__(self, folder: Path, url_of: Callable[[int, str], str]) -> None:
        self.folder = folder
        self.network = pick_network()
        self.address = f"{self.network}10"
        self.ca = folder / "ca.pem"
        self._make_certificate()
        self.machines = {number: self._make_machine(number, url_of) for number in (1, 2, 3)}
        self.regions = [
            machine.make_server("berth-region.service", (f"{self.network}{number}", 8778))
            for number, machine in self.machines.items()
        ]
        self.conductors = {
            (cell, number): self.machines[number].make_server(
                "berth-cell@.service", (f"{self.network}{number}", 8780 + home), cell
            )
            for cell, home in CELLS.items()
            for number in (home, SPARE)
        }
        self.agents = {cell: self._make_agent(cell, number) for cell, number in CELLS.items()}
        self.haproxy = self._make_haproxy()

    def _make_machine(self, number: int, url_of: Callable[[int, str], str]) -> Machine:
        own = f"{self.network}{number}:"
        replaced = {
            f"mysql://berth:secret@10.0.0.1,10.0.0.2,10.0.0.3/{name}": url_of(number, name)
            for name in ("region", *CELLS)
        }
        for port in (8778, 8781, 8782):
            for other in (1, 2, 3):
                replaced[f"10.0.0.{other}:{port}"] = f"{own}{port}"
        replaced["10.0.0."] = self.network
        examples = {
            "ca.pem": self.ca,
            "region.toml": EXAMPLES / "region.toml",
            "tokens.toml": UNITS / "tokens.toml",
            **{f"cell-{cell}.env": EXAMPLES / f"{cell}.env" for cell in CELLS},
        }
        return Machine(self.folder / f"machine{number}", examples, replaced)

    def _make_agent(self, cell: str, number: int) -> ServerProcess:
        examples = {"ca.pem": self.ca, "agent.env": EXAMPLES / f"agent-of-{cell}.env"}
        host = Machine(self.folder / f"host-{number}", examples, {"10.0.0.": self.network})
        return host.make_server("berth-agent.service", None)

    def _make_haproxy(self) -> ServerProcess:
        config = self.folder / "haproxy.cfg"
        text = (EXAMPLES / "haproxy.cfg").read_text().replace("10.0.0.", self.network)
        config.write_text(text.replace("/etc/haproxy/berth.pem", str(self.folder / "berth.pem")))
        subprocess.run(["haproxy", "-c", "-q", "-f", config], check=True, timeout=30)
        return ServerProcess(lambda _: ["haproxy", "-db", "-f", str(config)], self.folder / "haproxy.log")

    def _make_certificate(self) -> None:
        key, pem = self.folder / "key.pem", self.folder / "berth.pem"
        subprocess.run(
            [
                *(
                    "openssl",
                    "req",
                    "-x509",
                    "-newkey",
                    "rsa:2048",
                    "-nodes",
                    "-days",
                    "2",
                    "-subj",
                    "/CN=berth",
                ),
                *("-addext", f"subjectAltName=IP:{self.address}", "-keyout", str(key)),
                *("-out", str(self.ca)),
            ],
            check=True,
            capture_output=True,
            timeout=60,
        )
        pem.write_text(self.ca.read_text() + key.read_text())

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for server in (*self.regions, *self.conductors.values(), *self.agents.values(), self.haproxy):
                stack.callback(_end, server)
            self.haproxy.launch()
            for region in self.regions:
                region.launch()
            for cell, number in CELLS.items():
                self.conductors[cell, number].launch()
            for agent in self.agents.values():
                agent.launch()
            with self.client() as client:
                self.wait(client, lambda: _count_up(client) == HOSTS, "all hosts are up")
            self.check_metrics()
            yield

    def check_metrics(self) -> None:
        """Whatever Prometheus is told to watch is there, and is what it is called."""
        watched = yaml.safe_load(PROMETHEUS_FILE.read_text().replace("10.0.0.", self.network))
        context = ssl.create_default_context(cafile=str(self.ca))
        for job in watched["scrape_configs"]:
            for target in job["static_configs"][0]["targets"]:
                url = f"{job.get('scheme', 'http')}://{target}/metrics"
                page = httpx.get(url, verify=context, timeout=WITHIN_S).text
                assert f"\n{SHOWN[job['job_name']]}" in page, f"{url}: {page[:500]}"

    def client(self) -> httpx.Client:
        context = ssl.create_default_context(cafile=str(self.ca))
        return httpx.Client(
            base_url=f"https://{self.address}:8778", headers=OPERATOR, timeout=60, verify=context
        )

    def wait(self, client: httpx.Client, condition: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + WITHIN_S
        while True:
            with contextlib.suppress(httpx.HTTPError, KeyError, ValueError):
                if condition():
                    return
            assert time.monotonic() < deadline_s, f"not in time: {what}; logs are in {self.folder}"
            time.sleep(0.1)


def _end(server: ServerProcess) -> None:
    if server.process is not None:
        server.kill()


def _count_up(client: httpx.Client) -> int:
    return len(client.get("/berth/v1/hosts", params={"state": "up", "name": "cell*"}).json()["hosts"])


class Writer(threading.Thread):
    """Claims for consumers of its own, one after the other, and remembers which were acknowledged."""

    def __init__(self, client: httpx.Client, providers: list[str]) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._providers = itertools.cycle(providers)
        self.acknowledged: dict[str, str] = {}
        """The provider of each consumer."""
        self.unknown = 0
        self.surprise: str | None = None
        self.is_over = False

    def run(self) -> None:
        with self._client:
            while not self.is_over and self.surprise is None:
                self._claim(str(uuid.uuid4()), next(self._providers))

    def _claim(self, consumer: str, provider: str) -> None:
        body = {
            "allocations": {provider: {"resources": {"VCPU": 1}}},
            "project_id": "load",
            "user_id": "load",
            "consumer_generation": None,
            "consumer_type": "LOAD",
        }
        try:
            answer = self._client.put(f"/allocations/{consumer}", json=body)
        except httpx.TransportError:
            self.unknown += 1
            time.sleep(0.05)
            return
        if answer.status_code == 204:
            self.acknowledged[consumer] = provider
        elif answer.status_code >= 500:
            self.unknown += 1
            time.sleep(0.05)
        else:
            self.surprise = f"{answer.status_code} {answer.text}"


class Work:
    """What users do meanwhile: writers, and servers that are created one by one."""

    def __init__(self, site: Site, client: httpx.Client) -> None:
        self.site = site
        self.client = client
        self.providers = [str(uuid.uuid4()) for _ in range(4)]
        self.servers: list[str] = []
        for provider in self.providers:
            made = client.post("/resource_providers", json={"uuid": provider, "name": f"load-{provider}"})
            assert made.status_code == 200, made.text
            total = {
                "resource_provider_generation": 0,
                "inventories": {"VCPU": {"total": 1_000_000, "max_unit": 1}},
            }
            assert client.put(f"/resource_providers/{provider}/inventories", json=total).status_code == 200
        self.writers = [Writer(site.client(), self.providers) for _ in range(WRITERS)]
        small = {"name": "small", "vcpus": 1, "ram": 128, "disk": 1}
        self.flavor = client.post("/compute/v2.1/flavors", json={"flavor": small}).json()["flavor"]["id"]
        kind = {"name": "image", "disk_format": "raw", "container_format": "bare"}
        self.image = client.post("/image/v2/images", json=kind).json()["id"]
        content = {"content-type": "application/octet-stream"}
        sent = client.put(f"/image/v2/images/{self.image}/file", content=b"image", headers=content)
        assert sent.status_code == 204, sent.text

    def go_on(self) -> None:
        """Until some more has been acknowledged to each writer, and one more server runs."""
        counts = [len(writer.acknowledged) for writer in self.writers]

        def has_gone_on() -> bool:
            assert [writer.surprise for writer in self.writers] == [None] * WRITERS
            return all(
                len(writer.acknowledged) >= before + PROGRESS
                for writer, before in zip(self.writers, counts, strict=True)
            )

        self.site.wait(self.client, has_gone_on, "writers have gone on")

    def create_server(self) -> None:
        wanted = {
            "name": f"server-{len(self.servers)}",
            "flavorRef": self.flavor,
            "imageRef": self.image,
            "networks": "none",
        }

        def is_created() -> bool:
            answer = self.client.post(
                "/compute/v2.1/servers",
                json={"server": wanted},
                headers={"openstack-api-version": "compute 2.90"},
            )
            assert answer.status_code == 202 or answer.status_code >= 500, answer.text
            if answer.status_code == 202:
                self.servers.append(answer.json()["server"]["id"])
            return answer.status_code == 202

        # A region that has just been lost may be asked first: users try again.
        self.site.wait(self.client, is_created, "a server is created")
        self.site.wait(self.client, self._are_active, "the servers are active")

    def _are_active(self) -> bool:
        listed = self.client.get("/compute/v2.1/servers/detail").json()["servers"]
        status = {server["id"]: server["status"] for server in listed}
        assert "ERROR" not in status.values(), listed
        return all(status[id] == "ACTIVE" for id in self.servers)

    def check(self) -> None:
        """What was acknowledged is there, as often as it was and no more than was asked for."""
        for writer in self.writers:
            writer.is_over = True
        for writer in self.writers:
            writer.join(WITHIN_S)
            assert not writer.is_alive()
        held: dict[str, str] = {}
        for provider in self.providers:
            answer = self.client.get(f"/resource_providers/{provider}/allocations").json()
            held |= dict.fromkeys(answer["allocations"], provider)
        acknowledged = {
            consumer: provider
            for writer in self.writers
            for consumer, provider in writer.acknowledged.items()
        }
        missing = acknowledged.items() - held.items()
        assert not missing
        assert len(held) <= len(acknowledged) + sum(writer.unknown for writer in self.writers)
        self.site.wait(self.client, self._is_well, "the doctor finds nothing")

    def _is_well(self) -> bool:
        return bool(self.client.get("/berth/v1/doctor").json()["findings"] == [])


@pytest.fixture(autouse=True)
def haproxy() -> None:
    try:
        require(*HAPROXY)
    except PackageMissing as missing:
        pytest.skip(str(missing))
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl, for a certificate")


@contextlib.contextmanager
def working(site: Site) -> Iterator[Work]:
    with site.running(), site.client() as client:
        work = Work(site, client)
        for writer in work.writers:
            writer.start()
        work.go_on()
        work.create_server()
        yield work
        work.check()


def lose_processes(site: Site, work: Work) -> None:
    """Of each kind one: it is killed, the rest goes on, and it comes back."""
    first, second, third = site.regions
    second.kill()
    work.go_on()
    second.launch()
    os.killpg(third.pid, signal.SIGSTOP)
    work.go_on()
    os.killpg(third.pid, signal.SIGCONT)
    work.create_server()
    # The conductor is lost with its machine: the third takes over, and agents find it there.
    site.conductors["cell1", 1].kill()
    site.conductors["cell1", SPARE].launch()
    site.agents["cell2"].kill()
    site.agents["cell2"].launch()
    site.wait(work.client, lambda: _count_up(work.client) == HOSTS, "all hosts are up again")
    work.create_server()
    site.haproxy.kill()
    site.haproxy.launch()
    work.go_on()
    first.kill()
    work.go_on()
    first.launch()


def test_prometheus_accepts_its_file(tmp_path: Path) -> None:
    try:
        require(*PROMETHEUS)
    except PackageMissing as missing:
        pytest.skip(str(missing))
    shutil.copy(OPS / "alerts.yml", tmp_path / "berth-alerts.yml")
    (tmp_path / "berth-ca.pem").touch()
    config = tmp_path / "prometheus.yml"
    config.write_text(PROMETHEUS_FILE.read_text().replace("/etc/prometheus/", f"{tmp_path}/"))
    checked = subprocess.run(
        ["promtool", "check", "config", config], capture_output=True, text=True, timeout=60
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "rules found" in checked.stdout


def test_on_galera(galera: Galera, tmp_path: Path) -> None:
    galera.restore()
    names = {name: f"{name}_{uuid.uuid4().hex[:8]}" for name in ("region", *CELLS)}
    urls = {name: galera.create_database(made) for name, made in names.items()}

    def url_of(machine: int, name: str) -> str:
        """The same cluster, with the machine's own node first."""
        before, _, rest = urls[name].rpartition("@")
        hosts, _, database = rest.partition("/")
        nodes = hosts.split(",")
        return f"{before}@{','.join(nodes[machine - 1 :] + nodes[: machine - 1])}/{database}"

    try:
        with working(site := Site(tmp_path, url_of)) as work:
            lose_processes(site, work)
            galera.kill_node(1)
            work.go_on()
            galera.start_node(1)
            galera.isolate(2)
            work.go_on()
            galera.heal(2)
            work.go_on()
            work.create_server()
    finally:
        galera.restore()
        for made in names.values():
            galera.drop_database(made)


def test_on_postgresql_with_a_standby(pair: Pair, tmp_path: Path) -> None:
    for name in ("region", *CELLS):
        pair.primary.create_database(name)
    with working(site := Site(tmp_path, lambda _, name: pair.database_url(name))) as work:
        pair.lose_primary()
        pair.promote()
        work.go_on()
        pair.rejoin()
        lose_processes(site, work)
