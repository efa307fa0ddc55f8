"""A region with two workers, a cell and an agent on PostgreSQL, and a Prometheus that watches them with the
alerts of ``ops/alerts.yml``. Only durations are others there: what takes minutes is not waited for."""

import contextlib
import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import httpx

from tests.databases import statements
from tests.databases.postgresql import PostgreSQL
from tests.packages import PROMETHEUS, require
from tests.servers import ENTRY, HOST, ROOT, ServerProcess
from tests.waiting import WITHIN_S

BERTH: Final = str(Path(sys.executable).with_name("berth"))
ALERTS: Final = ROOT / "ops" / "alerts.yml"
ADMIN: Final = "the-admin-token-nobody-may-log"
SERVICE: Final = "the-service-token-nobody-may-log"
JOIN: Final = "the-join-token-nobody-may-log"
SECRETS: Final = (ADMIN, SERVICE, JOIN)
HEADERS: Final = {"openstack-api-version": "placement 1.39, compute 2.94"}
BUILD_S: Final = 5
SNAPSHOT_EVERY: Final = 100


class PipedServer(ServerProcess):
    """A server whose log goes through a pipe, to a reader that can be stopped."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.reader: subprocess.Popen[bytes] | None = None

    def _launch(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        with self.log_path.open("ab") as log:
            self.reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
        assert self.reader.stdin is not None
        with self.reader.stdin as pipe:
            return subprocess.Popen(
                words,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                start_new_session=True,
            )


class Fleet:
    """``stack``: of who ends what was started, also when not all of it could be."""

    def __init__(
        self,
        directory: Path,
        postgresql: PostgreSQL,
        names: tuple[str, str],
        stack: contextlib.ExitStack,
    ) -> None:
        self.directory = directory
        self.postgresql = postgresql
        self.names = names
        region_url, cell_url = (postgresql.database_url(name) for name in names)
        self._write_tokens()
        env = {name: value for name, value in os.environ.items() if not name.startswith(("BERTH_", "OS_"))}
        tokens = directory / "tokens.toml"
        region = (
            f"region --database {region_url} --cells cell1={cell_url} --auth tokens --tokens-file {tokens}"
        )
        region += f" --workers 2 --database-outage-seconds 1 --snapshot-every-batches {SNAPSHOT_EVERY}"
        region += " --log-level debug --log-format json --worker-hung-seconds 300"
        self.region = PipedServer(
            lambda port: [BERTH, *region.split(), "--listen", f"{HOST}:{port}"], directory / "region.log", env
        )
        self.region.start()
        stack.callback(self._end_region)
        cell = f"cell --name cell1 --database {cell_url} --placement {self.region.url} --heartbeat-timeout 5"
        cell += f" --build-seconds {BUILD_S} --log-level debug --log-format json"
        secrets = {**env, "BERTH_PLACEMENT_TOKEN": SERVICE, "BERTH_AGENT_TOKEN": JOIN}
        self.cell = ServerProcess(
            lambda port: [BERTH, *cell.split(), "--listen", f"{HOST}:{port}"],
            directory / "cell.log",
            secrets,
            ENTRY,
        )
        # A connection that is kept stays with one worker.
        self._client = stack.enter_context(httpx.Client(base_url=self.region.url))
        self.cell.start()
        stack.callback(_end, self.cell)
        self.agents = directory / "agents"
        agent = f"agent --driver sim --hosts 3 --conductor {self.cell.url} --data {self.agents}"
        agent += " --build-seconds 0 --log-level debug --log-format json"
        self.agent = ServerProcess(
            lambda port: [BERTH, *agent.split(), "--metrics-listen", f"{HOST}:{port}"],
            directory / "agent.log",
            secrets,
            ENTRY,
        )
        self.agent.start()
        stack.callback(_end, self.agent)
        self.prometheus = ServerProcess(self._make_prometheus_command, directory / "prometheus.log")
        self.prometheus.start()
        stack.callback(_end, self.prometheus)

    def _write_tokens(self) -> None:
        entries = [
            f'[[token]]\ntoken = "sha256:{hashlib.sha256(token.encode()).hexdigest()}"\n'
            f'user = "{user}"\nproject = "{user}"\nroles = ["{role}"]\n'
            for user, token, role in (("admin", ADMIN, "admin"), ("service", SERVICE, "service"))
        ]
        path = self.directory / "tokens.toml"
        path.write_text("\n".join(entries))
        path.chmod(0o600)

    def _make_prometheus_command(self, port: int) -> list[str]:
        rules = self.directory / "alerts.yml"
        rules.write_text(shorten(ALERTS.read_text()))
        jobs = {"berth": self.region, "berth-cell": self.cell, "berth-agent": self.agent}
        config = "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
        config += f"rule_files: [{rules}]\nscrape_configs:\n"
        for job, server in jobs.items():
            config += f"  - job_name: {job}\n    static_configs: [{{targets: ['{HOST}:{server.port}']}}]\n"
        path = self.directory / "prometheus.yml"
        path.write_text(config)
        storage = f"--storage.tsdb.path={self.directory / 'prometheus'}"
        return ["prometheus", f"--config.file={path}", storage, f"--web.listen-address={HOST}:{port}"]

    def _end_region(self) -> None:
        _end(self.region)
        if self.region.reader is not None:
            self.region.reader.send_signal(signal.SIGCONT)
            self.region.reader.wait(10)

    # -- what an operator does ------------------------------------------------------------------

    def ask(
        self, method: str, path: str, body: Any = None, timeout_s: float = 10, token: str = ADMIN
    ) -> httpx.Response | None:
        """The answer of the region; None if there is none in time: a worker may hang."""
        headers = {**HEADERS, "x-auth-token": token}
        try:
            return self._client.request(method, path, json=body, headers=headers, timeout=timeout_s)
        except httpx.HTTPError:
            return None

    def log_in(self) -> str:
        """A token that the region issues: whether it was revoked is in the journal."""
        user = {"name": "admin", "domain": {"name": "Default"}, "password": ADMIN}
        identity = {"methods": ["password"], "password": {"user": user}}
        body = {"auth": {"identity": identity}}
        answer = self.ask("POST", "/identity/v3/auth/tokens", body)
        assert answer is not None
        assert answer.status_code == 201, answer.text
        return answer.headers["x-subject-token"]

    def must(self, method: str, path: str, body: Any = None) -> Any:
        """The same, until there is an answer that is no error."""
        answers: list[httpx.Response | None] = []

        def is_done() -> bool:
            answers.append(self.ask(method, path, body, timeout_s=3))
            return answers[-1] is not None and answers[-1].status_code < 300

        wait_until(is_done, lambda: f"{method} {path}: {answers[-1] and answers[-1].text}")
        assert answers[-1] is not None
        return answers[-1].json() if answers[-1].content else None

    def query(self, expression: str) -> dict[tuple[str, ...], float]:
        """What Prometheus answers: values by their labels but for the name, the job and the instance."""
        url = f"{self.prometheus.url}/api/v1/query"
        found = httpx.get(url, params={"query": expression}, timeout=WITHIN_S).json()["data"]["result"]
        unshown = ("__name__", "job", "instance")
        return {
            tuple(value for name, value in sorted(one["metric"].items()) if name not in unshown): float(
                one["value"][1]
            )
            for one in found
        }

    def query_all(self, expression: str, count: int) -> dict[tuple[str, ...], float]:
        """The same, once there are so many: of a process that did not answer in time there are none."""
        found: dict[tuple[str, ...], float] = {}

        def are_there() -> bool:
            found.clear()
            found.update(self.query(expression))
            return len(found) == count

        wait_until(are_there, lambda: f"{expression}: {count} are expected, there are {found}")
        return found

    def find_firing(self) -> dict[str, str]:
        """The summaries of the alerts that fire, by name."""
        url = f"{self.prometheus.url}/api/v1/alerts"
        alerts = httpx.get(url, timeout=WITHIN_S).json()["data"]["alerts"]
        return {
            alert["labels"]["alertname"]: alert["annotations"]["summary"]
            for alert in alerts
            if alert["state"] == "firing"
        }

    def wait_for_alerts(
        self, *names: str, meanwhile: Callable[[], object] = lambda: None, within_s: float = WITHIN_S
    ) -> dict[str, str]:
        """Until all of them have fired; their summaries. ``meanwhile`` is done in between."""
        fired: dict[str, str] = {}

        def have_fired() -> bool:
            meanwhile()
            fired.update(self.find_firing())
            return set(names) <= set(fired)

        wait_until(have_fired, lambda: f"{set(names) - set(fired)} do not fire; {sorted(fired)} do", within_s)
        return {name: fired[name] for name in names}

    def find_workers(self) -> dict[tuple[str, ...], int]:
        found = self.query_all('berth_worker_pid{job="berth"}', 2)
        return {worker: int(pid) for worker, pid in found.items()}

    @contextlib.contextmanager
    def database_away(self, name: str) -> Iterator[None]:
        """Nobody gets into a database, as when its server is away."""
        self.postgresql.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        try:
            self.postgresql.execute(ended)
            yield
        finally:
            self.postgresql.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')

    def execute_in_region(self, statement: str) -> None:
        """Run a statement in the region's database, as who may do everything."""
        url = f"{self.postgresql.admin_url.rpartition('/')[0]}/{self.names[0]}"
        statements.execute(url, statement)


SILENT_S: Final = 150


def shorten(rules: str) -> str:
    """The rules with short durations, and nothing else changed. A conductor says once a minute that it is at
    work, and the region writes that down within another: it cannot be silent any sooner."""
    rules = re.sub(r"for: \d+[smh]", "for: 1s", rules)
    rules = re.sub(r"(?<=berth_conductor_heard_timestamp_seconds > )\d+", str(SILENT_S), rules, count=1)
    return re.sub(r"\[\d+[smh]\]", "[15s]", rules)


def wait_until(is_so: Callable[[], bool], explain: Callable[[], str], within_s: float = WITHIN_S) -> None:
    end_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < end_s, explain()
        time.sleep(0.2)


def _end(server: ServerProcess) -> None:
    if server.process is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGCONT)
        server.stop()


@contextlib.contextmanager
def running_fleet(directory: Path, postgresql: PostgreSQL) -> Iterator[Fleet]:
    require(*PROMETHEUS)
    names = ("alerts_region", "alerts_cell")
    for name in names:
        postgresql.create_database(name)
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.callback(postgresql.drop_database, name)
        yield Fleet(directory, postgresql, names, stack)
