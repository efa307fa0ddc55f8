"""The witness: sees what passes between hosts, cells and the region, and holds it against what they write.

* A host is marked down only if it was not heard of for a while.
* An agent reports a command only when its result is on its disk, and does not carry it out again then.
* A driver gets no command of a server that is older than one that it has had.
* What an evacuated server held is released only when the server is not on its old host's disk any more.
* The region forgets a saga run, or an abort, only when the cell has it.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from berth.agent.state import StoredState
from berth.cell.protocol import POLL, REPORT, AgentCommand, Fence, Report
from berth.client import WireAnswer, WireRequest
from berth.journal import JournalRow
from berth.model.events import Batch, Event, RecordChanged
from berth.model.saga_runs import Agent, Instance, Outbox
from berth.sim.audit import FINISHED, Fail, Runs
from berth.sim.cloud import SimCloud
from berth.sim.world import Process


class Witness:
    def __init__(self, cloud: SimCloud, runs: dict[str, Runs], fail: Fail) -> None:
        self._cloud = cloud
        self._runs = runs
        self._fail = fail
        self._now_s = cloud.world.loop.time
        self.heard_s: dict[str, float] = {}
        """When each host was heard of last by the conductor in charge."""
        self._reported: set[tuple[str, str]] = set()
        self._fences: dict[tuple[object, str], Fence] = {}
        self._names = {part.host.id: name for name, part in cloud.hosts.items()}
        cloud.network.sent.append(self._on_sent)
        cloud.network.answered.append(self._on_answered)
        cloud.faults.commanded.append(self._on_command)
        for cell in cloud.cells.values():
            cell.database.appended.append(self._on_cell)

    # -- hosts ----------------------------------------------------------------------------------

    def _on_answered(self, source: str, request: WireRequest, response: WireAnswer, server: Process) -> None:
        # What a conductor hears that was replaced is nothing to the one in charge.
        if request.path == POLL and response.status == 200 and not self._is_replaced(server):
            self.heard_s[source] = self._now_s()

    def _is_replaced(self, conductor: Process) -> bool:
        return self._cloud.cells[conductor.name].process is not conductor

    def _on_sent(self, source: str, request: WireRequest) -> None:
        if request.path != REPORT:
            return
        report = msgspec.json.decode(request.content, type=Report)
        if report.command not in self._read_disk(source).results:
            self._fail(f"{source} reports {report.command}, and its result is not on the disk")
        self._reported.add((source, report.command))

    def _on_command(self, host: str, command: AgentCommand, driver: object) -> None:
        if (host, command.id) in self._reported:
            self._fail(f"{host} carries out {command.id}, which it has reported already")
        key = (driver, command.server)
        if command.fence < self._fences.get(key, command.fence):
            self._fail(f"{host} carries out {command.id} after a later command for server {command.server}")
        self._fences[key] = command.fence

    def _read_disk(self, host: str) -> StoredState:
        return self._cloud.hosts[host].stored()

    # -- cells ----------------------------------------------------------------------------------

    def _on_cell(self, process: Process, row: JournalRow, batch: Batch) -> None:
        for entry in batch.entries:
            for event in entry.events:
                if isinstance(event, RecordChanged):
                    self._judge(event.before, event.after)

    def _judge(self, before: Any, after: Any) -> None:
        match before, after:
            case Agent(is_down=False), Agent(is_down=True):
                silent_s = self._now_s() - self.heard_s.get(after.name, 0)
                # What it takes to write it down is no silence.
                if silent_s < self._cloud.heartbeat_timeout_s / 2:
                    self._fail(f"{after.name} is marked down, and was heard of {silent_s:.1f} s ago")
            case Instance(), Instance():
                for left in {one.host for one in before.evacuated} - {one.host for one in after.evacuated}:
                    host = self._names[left]
                    if left not in after.hosts and after.id in self._read_disk(host).servers:
                        self._fail(f"{after.id} is released on {host}, and is still on its disk")

    # -- the region -----------------------------------------------------------------------------

    def on_region(self, index: int, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, RecordChanged) and event.after is None and isinstance(event.before, Outbox):
                self._judge_handed_over(index, event.before)

    def _judge_handed_over(self, index: int, outbox: Outbox) -> None:
        runs = self._runs[outbox.cell]
        if outbox.run is not None and outbox.run.id not in runs.seen:
            self._fail(f"region {index}: run {outbox.run.id} is forgotten, and {outbox.cell} never had it")
        if outbox.abort is not None:
            run = runs.runs.get(outbox.abort)
            if run is not None and run.phase not in FINISHED and not run.abort:
                self._fail(f"region {index}: the abort of {run.id} is forgotten, and it goes on")
