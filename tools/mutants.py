"""Plant bugs one by one, and see whether the simulator finds them: ``python tools/mutants.py``, or
``make mutants``.

Each row of ``MUTANTS`` is one bug: a text in a file of ``src/berth``, and what stands there instead. It is
planted in a copy of the sources, never in the working tree. Then seeds of the row's profile are played on
that copy, the row's own first, until a check fails: the bug is found. A failure counts only if the same seed
holds without the bug. Exit status 0 when at least 90 % of the bugs are found within 1,000 seeds each.

To add one, add a row. The text must be in its file exactly once, so that a row whose code was changed is
noticed; a unit test says so too.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple, NoReturn

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCES: Final = ROOT / "src"
FOUND_AT_LEAST: Final = 0.9
_SEED_CPU_S: Final = 120
"""A seed that takes more CPU time than this does not end: the simulator bounds virtual time and the number of
callbacks, but not how long one callback takes."""
_NO_END: Final = f"no end after {_SEED_CPU_S} s of CPU time"
_SEEDS_PER_PROCESS: Final = 25
_CHECK_LENGTH: Final = 110


class Mutant(NamedTuple):
    """One bug. ``file`` is below ``src/berth``, ``profile`` the one that should find it. ``seed`` is played
    before all others: the one that has found it last. It changes nothing in how many are played."""

    name: str
    file: str
    text: str
    instead: str
    why: str
    profile: str = "lifecycle"
    seed: int = 1

    @property
    def path(self) -> Path:
        return Path("berth") / self.file


MUTANTS: Final = (
    # -- engine ---------------------------------------------------------------------------------
    Mutant(
        name="early answer",
        file="engine/engine.py",
        text="""\
        tried[batch.id] = outcomes
        points = (pending.trace_point for pending in waiting)
""",
        instead="""\
        tried[batch.id] = outcomes
        for pending in waiting:
            if not isinstance(pending.outcome, OutOfSteps):
                _settle(pending.future, pending.outcome)
        points = (pending.trace_point for pending in waiting)
""",
        why="a command is answered before its batch is durable",
    ),
    Mutant(
        name="no take-back",
        file="engine/engine.py",
        text="""\
            del tried[batch.id]
            self._take_back(batch)
            outcomes = await self._catch_up(tried)
""",
        instead="""\
            del tried[batch.id]
            self.view.index = Index(batch.index - 1)
            outcomes = await self._catch_up(tried)
""",
        why="a batch that has lost the race stays in the view",
    ),
    Mutant(
        name="missing catch-up",
        file="engine/engine.py",
        text="""\
            self._take_back(batch)
            outcomes = await self._catch_up(tried)
        except NotWritten as refusal:
""",
        instead="""\
            self._take_back(batch)
            self.view.index = batch.index
        except NotWritten as refusal:
""",
        why="what another writer wrote first is never applied",
    ),
    Mutant(
        name="tried batch not searched",
        file="engine/engine.py",
        text="outcomes = tried.get(batch.id, outcomes)",
        instead="pass",
        why="a batch whose outcome was unknown is written again, though it is in the journal",
        profile="claims",
        seed=2,
    ),
    Mutant(
        name="stale read",
        file="engine/engine.py",
        text="if self._bug is not None or self._shared or self._doubt is not None or self._writer is None:",
        instead="if self._bug is not None or self._doubt is not None or self._writer is None:",
        why="a worker reads without looking for what others have written",
    ),
    Mutant(
        name="stale refusal",
        file="engine/engine.py",
        text="if not self._shared or self._is_fresh:",
        instead="if True:",
        why="a request is refused because of something that is not so any more",
    ),
    Mutant(
        name="early read",
        file="engine/engine.py",
        text="if self._in_flight is None or await asyncio.shield(self._in_flight):",
        instead="if True:",
        why="a read shows what is not durable, and may be taken back",
        profile="claims",
    ),
    # -- journal --------------------------------------------------------------------------------
    Mutant(
        name="lost race taken for a success",
        file="journal/journal.py",
        text='if self._insert(self._append, row, index, index, before, previous or "") == 0:',
        instead='if self._insert(self._append, row, index, index, before, previous or "") < 0:',
        why="an append that wrote nothing is taken for one that did",
    ),
    Mutant(
        name="append asks for nothing",
        file="journal/journal.py",
        text="""\
            f"WHERE NOT EXISTS (SELECT 1 FROM journal WHERE idx > {mark}) "
            f"AND ({mark} = 1 OR EXISTS ({follows}))"
""",
        instead="""\
            f"WHERE NOT EXISTS (SELECT 1 FROM journal WHERE 1 = 2 AND idx > {mark}) "
            f"AND ({mark} = 1 OR 1 = 1 OR EXISTS ({follows}))"
""",
        why="a writer that was stopped meanwhile writes where the journal was pruned",
        profile="claims",
        seed=5,
    ),
    Mutant(
        name="another past accepted",
        file="journal/journal.py",
        text="if row is None or (row.idx == index and row.batch_id != id):",
        instead="if row is not None and row.idx < index:",
        why="a standby that lacks the last rows is written to as if it had them",
        profile="claims",
        seed=2,
    ),
    # -- view -----------------------------------------------------------------------------------
    Mutant(
        name="lost inverse",
        file="model/events.py",
        text="""\
            held_before=event.held_after,
            held_after=event.held_before,
        )
""",
        instead="""\
        )
""",
        why="taking a claim back does not take back what is held",
    ),
    Mutant(
        name="index not updated on removal",
        file="view/records.py",
        text="for key in set(gone).difference(come):",
        instead="for key in set(gone).difference(come) if after is not None else ():",
        why="a record that was removed is still found by what it was indexed by",
    ),
    Mutant(
        name="use not returned to the column",
        file="view/view.py",
        text="self.classes.column(class_id).take(record.row, sign * amount)",
        instead="self.classes.column(class_id).take(record.row, max(sign, 0) * amount)",
        why="the search believes that what was released is still in use",
    ),
    Mutant(
        name="usage not returned",
        file="view/view.py",
        text="self.usage.remove(event.before, event.held_before)",
        instead="""\
if event.after is not None:
                self.usage.remove(event.before, event.held_before)""",
        why="what a deleted consumer held still counts as its project's",
    ),
    Mutant(
        name="deleted member still counted",
        file="view/view.py",
        text="""\
            self.groups.stand(id, self.hosts_held(event.held_before), -1)
""",
        instead="""\
            if event.after is not None:
                self.groups.stand(id, self.hosts_held(event.held_before), -1)
""",
        why="a group counts a member on a host where it holds nothing any more",
        profile="claims",
    ),
    # -- ledger ---------------------------------------------------------------------------------
    Mutant(
        name="capacity off by one",
        file="ledger/allocations.py",
        text="if used + asked > capacity and used + asked > used_before:",
        instead="if used + asked > capacity + 1 and used + asked > used_before:",
        why="one more is claimed than there is",
        profile="claims",
        seed=2,
    ),
    Mutant(
        name="consumer generation not checked",
        file="ledger/allocations.py",
        text="    if current == claim.generation:",
        instead="    if current is not None or claim.generation is None:",
        why="a claim overwrites what its writer has not seen",
        profile="claims",
    ),
    Mutant(
        name="provider generation not checked",
        file="ledger/providers.py",
        text="if generation is not None and generation != record.generation:",
        instead="if generation is not None and generation > record.generation:",
        why="an inventory is overwritten by a writer who has not seen it",
        profile="claims",
    ),
    Mutant(
        name="consumer generation does not grow",
        file="ledger/allocations.py",
        text="generation=generation + 1 if after else generation,",
        instead="generation=max(generation, 1) if after else generation,",
        why="a second writer cannot tell that a first one was there",
    ),
    Mutant(
        name="group without migrations",
        file="ledger/groups.py",
        text="return _stands_for(view, givers, after)",
        instead="return None",
        why="the place that a migration holds is given to another member of the group",
        profile="claims",
    ),
    Mutant(
        name="migration beside a pool no member",
        file="ledger/groups.py",
        text="(operator.eq, partial(_is_rest, view, sharing)) if sharing else (operator.eq,):",
        instead="(operator.eq,):",
        why="the place of a migration is given to another member, as its server keeps its part of a pool",
        profile="pools",
        seed=5,
    ),
    Mutant(
        name="max per domain off by one",
        file="ledger/groups.py",
        text="if group.max_per_domain is not None and there > group.max_per_domain:",
        instead="if group.max_per_domain is not None and there > group.max_per_domain + 1:",
        why="one member more than allowed shares a domain",
        profile="claims",
    ),
    Mutant(
        name="affinity not judged",
        file="ledger/groups.py",
        text="if not new or is_apart or self._is_shared(who, domains, after):",
        instead="if not new or not is_apart or self._is_shared(who, domains, after):",
        why="members that must be together are apart",
        profile="claims",
    ),
    Mutant(
        name="quota off by one",
        file="ledger/quotas.py",
        text="return limit != UNLIMITED and used + more > limit",
        instead="return limit != UNLIMITED and used + more > limit + 1",
        why="a project has one server more than its quota says",
    ),
    # -- sagas ----------------------------------------------------------------------------------
    Mutant(
        name="undo skipped",
        file="sagas/runner.py",
        text="""\
    if run.step == 0:
        return _next_version(run, phase="failed")
""",
        instead="""\
    if run.step <= 1:
        return _next_version(run, phase="failed")
""",
        why="what a failed saga has claimed is not given back",
        seed=3,
    ),
    Mutant(
        name="wrong holdings after failure",
        file="region/cell_records.py",
        text="""\
        task=None,
        run=None,
        held=run.claim.held,
""",
        instead="""\
        task=None,
        run=None,
        held=run.claim.held if is_done else server.held,
""",
        why="the record of a server whose saga has failed says that it holds what it held before",
    ),
    Mutant(
        name="alternate claimed twice",
        file="cell/placement.py",
        text="changes = [_ConsumerChange(run.server, INSTANCE, run.claim, dest.held, keeps=True, left=left)]",
        instead="""\
both = plus((run.claim.held, dest.held))
        changes = [_ConsumerChange(run.server, INSTANCE, run.claim, both, keeps=True, left=left)]""",
        why="a claim that moves to an alternate keeps the host before it",
    ),
    Mutant(
        name="confirm releases the server",
        file="cell/placement.py",
        text="""\
                (released_migration,) = await self._change(run, [migration])
                return run.claim, released_migration
""",
        instead="""\
                (released,) = await self._change(run, [server])
                return released, last
""",
        why="the server loses its allocations, and its migration keeps the source",
    ),
    Mutant(
        name="gives back the wrong host",
        file="cell/placement.py",
        text="given = plus((last.held, run.shared))",
        instead="given = plus((run.claim.held, run.shared))",
        why="a revert gives back what the server holds at the destination",
        seed=2,
    ),
    Mutant(
        name="evacuation leaves the old claim",
        file="cell/saga_runs.py",
        text="evacuated = (*evacuated, left)",
        instead="evacuated = evacuated or ()",
        why="what was held on the dead host is never released",
        seed=4,
    ),
    Mutant(
        name="flavor kept after a revert",
        file="sagas/saga.py",
        text="flavor=server.flavor_before or server.flavor,",
        instead="flavor=server.flavor,",
        why="a reverted server has the flavor of the resize, and the resources of the one before",
        seed=5,
    ),
    Mutant(
        name="lost answer is a conflict",
        file="cell/placement.py",
        text="if all(map(_is_made, changes, now)):",
        instead="if not now:",
        why="a change whose answer was lost is made again, on top of itself",
        seed=19,
    ),
    # -- conductor ------------------------------------------------------------------------------
    Mutant(
        name="step repeated after success",
        file="cell/saga_runs.py",
        text="""\
    if instance.last >= run.number:
        return None
""",
        instead="",
        why="a saga run that has ended is executed again when it is handed over twice",
        seed=3,
    ),
    Mutant(
        name="deadline ignored",
        file="cell/mailbox.py",
        text="async with asyncio.timeout(max(within_s, 0)):",
        instead="async with asyncio.timeout(None):",
        why="a command that hangs holds its saga up for ever",
        seed=16,
    ),
    Mutant(
        name="replaced conductor goes on",
        file="cell/saga_runs.py",
        text="return term != term_of(view)",
        instead="return term > term_of(view)",
        why="two conductors write into one cell's journal, and the old one marks hosts down",
    ),
    Mutant(
        name="stale step recorded",
        file="cell/saga_runs.py",
        text="if run is None or (run.phase, run.step, run.attempt) != (seen.phase, seen.step, seen.attempt):",
        instead="if run is None:",
        why="the outcome of a step is recorded as that of the next",
    ),
    # -- mailbox --------------------------------------------------------------------------------
    Mutant(
        name="report settles another command",
        file="cell/mailbox.py",
        text="""\
        waiting = self._by_host.get(host, {}).get(command)
        if waiting is None or waiting.outcome.done():
""",
        instead="""\
        waiting = next(iter(self._by_host.get(host, {}).values()), None)
        if waiting is None or waiting.outcome.done():
""",
        why="a saga goes on because of the report of another server's command",
    ),
    Mutant(
        name="down is taken for done",
        file="cell/mailbox.py",
        text="self.settle(host, command, reason)",
        instead="self.settle(host, command, None)",
        why="the commands of a host that is down count as carried out",
        seed=3,
    ),
    # -- heartbeats -----------------------------------------------------------------------------
    Mutant(
        name="heartbeat compared wrongly",
        file="cell/hosts.py",
        text="return (self._clock.monotonic_ns() - since_ns) / 1e9 > self._timeout_s",
        instead="return (self._clock.monotonic_ns() - since_ns) / 1e9 > self._timeout_s / 4",
        why="a host is down that was heard of within the timeout",
    ),
    Mutant(
        name="never up again",
        file="cell/hosts.py",
        text="if known.has_abandoned or (known.is_down and not known.leftovers):",
        instead="if known.has_abandoned or (known.is_down and not known.has_complaints and not servers):",
        why="a host with servers that was down once stays down",
    ),
    Mutant(
        name="down at start",
        file="cell/hosts.py",
        text="since_ns = max(self._heard_ns.get(host, 0), self._hears_since_ns)",
        instead="since_ns = self._heard_ns.get(host, 0)",
        why="a conductor that starts gives hosts no time to be heard of",
        seed=2,
    ),
    # -- leftovers ------------------------------------------------------------------------------
    Mutant(
        name="leftovers not destroyed",
        file="agent/host.py",
        text="destroyed = [self._commands.destroy_leftover(leftover) for leftover in answer.leftovers]",
        instead="destroyed = [False for leftover in answer.leftovers]",
        why="what was evacuated stays on its old host",
    ),
    Mutant(
        name="source destroyed as a leftover",
        file="cell/saga_runs.py",
        text="""\
places = [place.id for place in (run.source, run.dest) if place is not None and is_in_cell_of(run, place)]""",
        instead="""\
places = [place.id for place in (run.dest,) if place is not None and is_in_cell_of(run, place)]
    hosts = tuple(host for host in hosts if run.source is None or host != run.source.id)""",
        why="a server is destroyed at its source while it is being moved",
    ),
    Mutant(
        name="alternate destroyed as a leftover",
        file="cell/saga_runs.py",
        text="return msgspec.structs.replace(instance, hosts=_add_hosts(instance.hosts, run))",
        instead="return instance",
        why="a server is destroyed on the alternate on which it is being built",
    ),
    Mutant(
        name="up with leftovers",
        file="cell/hosts.py",
        text="""\
        if known.was_evacuated and not known.leftovers:
            await self._enact(lambda view: release_evacuated(view, self._ids, host, servers, now_ns))
""",
        instead="""\
        if known.was_evacuated:
            await self._enact(lambda view: release_evacuated(view, self._ids, host, (), now_ns))
""",
        why="what an evacuated server held is released while it is still on its old host",
        seed=11,
    ),
    # -- agent ----------------------------------------------------------------------------------
    Mutant(
        name="fence ignored",
        file="agent/commands.py",
        text="if command.fence < self._state.fence_of(command.server):",
        instead="if False:",
        why="a command that comes late undoes what a later one has done",
    ),
    Mutant(
        name="result not kept",
        file="agent/commands.py",
        text="self._state.note_result(id, error)",
        instead="pass",
        why="a command that was carried out is carried out again when it is handed out again",
    ),
    Mutant(
        name="reported before it is durable",
        file="agent/commands.py",
        text="""\
                await self._save()
            if not job.is_leftover:
                await self._report(job.command, error)
""",
        instead="""\
            if not job.is_leftover:
                await self._report(job.command, error)
                await self._save()
""",
        why="a host that dies has forgotten what it has reported",
    ),
    Mutant(
        name="leftover gone before that is durable",
        file="agent/commands.py",
        text="return tuple(job.command.server for job in self._jobs.values() if job.is_leftover)",
        instead="return ()",
        why="a host counts as clean, dies, and has the leftover again",
        profile="operators",
        seed=9,
    ),
    Mutant(
        name="earlier command not stopped",
        file="agent/commands.py",
        text="self._stop(other, SUPERSEDED)",
        instead="pass",
        why="a command that hangs blocks every later one for its server",
    ),
    Mutant(
        name="leftover destroyed though it is gone",
        file="agent/commands.py",
        text="if not self._is_here(leftover.server):",
        instead="if False:",
        why="an agent and its conductor tell each other of a leftover that is gone, without a pause",
        seed=3,
    ),
    Mutant(
        name="leftover without a fence",
        file="agent/commands.py",
        text="""\
        job = _Job(command, is_leftover=True)
        self._supersede_earlier(job)
""",
        instead="""\
        job = _Job(command, is_leftover=True)
""",
        why="a command that comes late builds again what was destroyed as a leftover",
    ),
    Mutant(
        name="leftover destroyed before a report",
        file="agent/commands.py",
        text="job.command.server == server and id not in self._state.results for id, job",
        instead="job.command.server == server for id, job",
        why="a leftover is destroyed without a pause until the conductor takes the report of its command",
        profile="clusters",
        seed=17,
    ),
    Mutant(
        name="leftover destroyed for ever",
        file="agent/commands.py",
        text="deadline = self._limit(job) if job.is_leftover else None",
        instead="deadline = None",
        why="a host is down for as long as its driver hangs as it destroys a leftover",
        profile="operators",
    ),
    Mutant(
        name="command outlives its run",
        file="cell/hosts.py",
        text="ended = saga_runs.find_ended(view, busy)",
        instead="ended = ()",
        why="a command that hangs keeps the units of its server, and nobody waits for it any more",
    ),
    # -- dispatcher -----------------------------------------------------------------------------
    Mutant(
        name="outbox cleared too early",
        file="region/cell_links.py",
        text="        outcome = await self._cell.submit(accept, _ORIGIN, lambda view, changed: changed)",
        instead="""\
        await self._region.submit(clear, _ORIGIN, lambda view, changed: None)
        outcome = await self._cell.submit(accept, _ORIGIN, lambda view, changed: changed)""",
        why="a run is lost if its cell cannot be written just then",
    ),
    Mutant(
        name="abort lost",
        file="region/cell_links.py",
        text='return saga_runs.abort_run(view, outbox.abort or "")',
        instead="return None",
        why="a live migration that was aborted goes on",
    ),
    # -- status sync ----------------------------------------------------------------------------
    Mutant(
        name="only the first version applied",
        file="region/status_sync.py",
        text="elif isinstance(record, SagaRun | Agent | Instance):",
        instead="""\
elif isinstance(record, Agent | Instance) or (isinstance(record, SagaRun) and not record.log):""",
        why="the end of a run is never known in the region",
    ),
    Mutant(
        name="run forgotten before it is applied",
        file="region/status_sync.py",
        text="        before = await self._region.submit(propose, origin, answer_unchanged)",
        instead="""\
        if is_finished(run):
            await self._cell.submit(
                lambda view, _: saga_runs.remove_finished(view, run.id), _ORIGIN, lambda view, changed: None
            )
        before = await self._region.submit(propose, origin, answer_unchanged)""",
        why="the end of a run is lost if the region cannot be written just then",
    ),
    Mutant(
        name="finished run stays in its cell",
        file="region/status_sync.py",
        text="""\
        if is_finished(run):
            await self._cell.submit(
                lambda view, _: saga_runs.remove_finished(view, run.id), _ORIGIN, lambda view, changed: None
            )
        del self._due[SagaRun, run.id]
""",
        instead="""\
        del self._due[SagaRun, run.id]
        if is_finished(run):
            await self._cell.submit(
                lambda view, _: saga_runs.remove_finished(view, run.id), _ORIGIN, lambda view, changed: None
            )
""",
        why="a run is not removed where its cell could not be written to at first",
    ),
    Mutant(
        name="migration not brought up",
        file="region/cell_records.py",
        text="""\
    if moved is not None:
        changes.append(replace_record(view, moved))
    return Enact(tuple(changes), commands)
""",
        instead="""\
    return Enact(tuple(changes), commands)
""",
        why="the record of a migration stays as it was when its move began",
    ),
    Mutant(
        name="host stays down in the region",
        file="region/cell_records.py",
        text="down = after.is_silent or after.is_forced_down",
        instead="down = after.is_silent or after.is_forced_down or status.down",
        why="a host that is up again gets no servers",
    ),
    # -- event stream ---------------------------------------------------------------------------
    Mutant(
        name="stream resumes too late",
        file="api/native/events.py",
        text="current if after is None else reach(after, current), current, chosen)",
        instead="current if after is None else reach(min(after + 1, current), current), current, chosen)",
        why="a client that reconnects is not told of one index",
        profile="claims",
    ),
    Mutant(
        name="event told twice",
        file="api/native/events.py",
        text="missing = self._at - index",
        instead="missing = self._at - index + (self._at > index)",
        why="a client is told of the index again that it has",
        profile="claims",
    ),
    # -- clusters -------------------------------------------------------------------------------
    Mutant(
        name="node dropped with its server there",
        file="clusters/reconciler.py",
        text="gone = tuple(node for node in leaving if _is_gone(view, node))",
        instead="gone = tuple(leaving)",
        why="a server that was to be deleted belongs to nobody",
        profile="clusters",
    ),
    Mutant(
        name="replacement not noted",
        file="clusters/reconciler.py",
        text="return Enact((RecordChanged(cluster, after), *enact.changes), enact.commands",
        instead="return Enact(enact.changes, enact.commands",
        why="a node is replaced without end",
        profile="clusters",
    ),
    Mutant(
        name="cluster gone before its nodes",
        file="clusters/reconciler.py",
        text="""\
    if not cluster.nodes:
        return _Due""",
        instead="""\
    if not cluster.nodes or cluster.state == "deleting":
        return _Due""",
        why="the servers of a deleted cluster are left behind",
        profile="clusters",
    ),
    # -- doctor ---------------------------------------------------------------------------------
    Mutant(
        name="repair corrects the record alone",
        file="doctor/repairs.py",
        text="return (ReplaceAllocations((claim,)),), (current or 0) + 1 if held else None",
        instead="return (), (current or 0) + 1 if held else None",
        why="the doctor says that it has repaired something, and finds it again",
        profile="operators",
    ),
    Mutant(
        name="orphan not released",
        file="doctor/repairs.py",
        text="commands: list[LedgerCommand] = [DeleteAllocations(consumer)]",
        instead="commands: list[LedgerCommand] = []",
        why="what a client left behind is never released",
        profile="operators",
    ),
)

# -- planting -------------------------------------------------------------------------------------


class Rotten(Exception):
    """A row does not fit the sources any more."""


def plant(mutant: Mutant, sources: Path) -> str:
    """The content of the mutant's file with the bug in it."""
    content = (sources / mutant.path).read_text()
    count = content.count(mutant.text)
    if count != 1:
        raise Rotten(f"{mutant.name}: its text is in {mutant.path} {count} times, and must be there once")
    return content.replace(mutant.text, mutant.instead)


def make_copy(mutant: Mutant, folder: Path) -> Path:
    """A copy of the sources with the bug in it."""
    copy = folder / mutant.name.replace(" ", "-")
    # With what is compiled already: that is valid for files of the same time and size.
    shutil.copytree(SOURCES, copy)
    (copy / mutant.path).write_text(plant(mutant, SOURCES))
    return copy


# -- playing --------------------------------------------------------------------------------------


class Played(NamedTuple):
    """``seed``: the one that failed, with ``failure``; None: all held. ``error``: nothing could be played."""

    seed: int | None
    failure: str
    seeds: int
    cpu_s: float
    error: str = ""


def play(sources: Path, profile: str, seeds: Iterable[int], minutes: float) -> Played:
    """Play seeds on these sources, in a process of their own, until one fails."""
    wanted = list(seeds)
    arguments = ["--play", profile, str(minutes), *map(str, wanted)]
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        env={**os.environ, "PYTHONPATH": str(sources), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    cpu_s = sum(line["cpu_s"] for line in lines)
    for line in lines:
        if line["failure"] is not None:
            return Played(line["seed"], line["failure"], len(lines), cpu_s)
    if len(lines) < len(wanted):
        return Played(None, "", len(lines), cpu_s, done.stderr.strip() or f"exit status {done.returncode}")
    return Played(None, "", len(lines), cpu_s)


def play_here(profile: str, minutes: float, seeds: Iterable[int]) -> None:
    """Play seeds in this process, and print a line for each, until one fails."""
    import berth
    from berth.sim.profiles import PROFILES
    from berth.sim.simulation import simulate

    assert str(Path(berth.__file__).resolve()).startswith(os.environ["PYTHONPATH"]), "the copy is played"
    for seed in seeds:
        started_s = time.process_time()

        def give_up(signal: int, frame: FrameType | None, seed: int = seed) -> NoReturn:
            _print_played(seed, _NO_END, _SEED_CPU_S)
            os._exit(1)

        signal.signal(signal.SIGPROF, give_up)
        signal.setitimer(signal.ITIMER_PROF, _SEED_CPU_S)
        try:
            failure = simulate(PROFILES[profile], seed, minutes=minutes).failure
        except Exception as error:
            failure = f"the simulation ends: {error!r}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        _print_played(seed, failure, time.process_time() - started_s)
        if failure is not None:
            return


def _print_played(seed: int, failure: str | None, cpu_s: float) -> None:
    print(json.dumps({"seed": seed, "failure": failure, "cpu_s": cpu_s}), flush=True)


# -- hunting --------------------------------------------------------------------------------------


class Hunted(NamedTuple):
    """How the hunt for one bug has ended."""

    mutant: Mutant
    profile: str
    played: Played

    @property
    def is_found(self) -> bool:
        return self.played.seed is not None

    @property
    def has_no_end(self) -> bool:
        return self.played.failure == _NO_END

    def __str__(self) -> str:
        mutant, played = self.mutant, self.played
        if played.error:
            outcome = f"ERROR     {played.error.splitlines()[-1]}"
        elif played.seed is None:
            outcome = f"SURVIVED  {played.seeds} seeds of {self.profile}: {mutant.why}"
        else:
            check = " ".join(played.failure.split())[:_CHECK_LENGTH]
            tried = f", after {played.seeds - 1} others" if played.seeds > 1 else ""
            outcome = f"found     {self.profile} seed {played.seed}{tried}: {check}"
        return f"{mutant.name:<38} {played.cpu_s:6.0f} s  {outcome}"


def _divide(first: int, seeds: range) -> Iterator[list[int]]:
    """The seeds that one process after the other plays: first the one that has found the bug last."""
    if first in seeds:
        yield [first]
    others = [seed for seed in seeds if seed != first]
    for start in range(0, len(others), _SEEDS_PER_PROCESS):
        yield others[start : start + _SEEDS_PER_PROCESS]


class Hunt:
    def __init__(self, folder: Path, profile: str | None, seeds: range, minutes: float) -> None:
        self._folder = folder
        self._profile = profile
        self._seeds = seeds
        self._minutes = minutes
        self._lock = threading.Lock()
        self._sound: set[tuple[str, int]] = set()

    def hunt(self, mutant: Mutant) -> Hunted:
        profile = self._profile or mutant.profile
        copy = make_copy(mutant, self._folder)
        try:
            return Hunted(mutant, profile, self._play(mutant, profile, copy))
        finally:
            shutil.rmtree(copy)

    def _play(self, mutant: Mutant, profile: str, copy: Path) -> Played:
        count, cpu_s = 0, 0.0
        for some in _divide(mutant.seed, self._seeds):
            played = play(copy, profile, some, self._minutes)
            count, cpu_s = count + played.seeds, cpu_s + played.cpu_s
            if played.seed is not None and not self._is_sound(profile, played.seed):
                return played._replace(seed=None, error=f"{profile} seed {played.seed} fails without the bug")
            if played.seed is not None or played.error:
                break
        return played._replace(seeds=count, cpu_s=cpu_s)

    def _is_sound(self, profile: str, seed: int) -> bool:
        """Whether a seed holds without any bug."""
        with self._lock:
            if (profile, seed) not in self._sound:
                if play(SOURCES, profile, [seed], self._minutes).failure:
                    return False
                self._sound.add((profile, seed))
            return True


def main(arguments: list[str] | None = None) -> int:
    given = _parse(arguments)
    if given.play:
        profile, minutes, *seeds = given.play
        play_here(profile, float(minutes), map(int, seeds))
        return 0
    chosen = [mutant for mutant in MUTANTS if any(name in mutant.name for name in given.only)]
    if given.list:
        print("\n".join(f"{mutant.name:<38} {mutant.profile:<10} {mutant.why}" for mutant in chosen))
        return 0
    for mutant in chosen:
        plant(mutant, SOURCES)
    seeds = range(given.first, given.first + given.seeds)
    hunted = []
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        ThreadPoolExecutor(given.processes) as pool,
    ):
        hunt = Hunt(Path(folder), given.profile, seeds, given.minutes)
        for done in as_completed([pool.submit(hunt.hunt, mutant) for mutant in chosen]):
            hunted.append(done.result())
            print(hunted[-1], flush=True)
    found = sum(one.is_found for one in hunted)
    endless = sum(one.has_no_end for one in hunted)
    cpu_s = sum(one.played.cpu_s for one in hunted)
    print(
        f"{found} of {len(hunted)} planted bugs found, {endless} of them because a simulation did not end, "
        f"in {cpu_s:.0f} s of CPU time"
    )
    return 0 if hunted and found >= FOUND_AT_LEAST * len(hunted) else 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "mutants.py", description="See whether the simulator finds planted bugs."
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=("",),
        metavar="NAME",
        help="the bugs with one of these in their name [all]",
    )
    parser.add_argument(
        "--seeds", type=int, default=1000, metavar="N", help="how many at most for each [1000]"
    )
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="N", help="the first seed [1]")
    parser.add_argument("--minutes", type=float, default=10, metavar="M", help="virtual minutes of each [10]")
    parser.add_argument("--profile", metavar="P", help="play this profile [what each row says]")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), metavar="N", help="[one a core]")
    parser.add_argument("--list", action="store_true", help="list the bugs, and play nothing")
    parser.add_argument("--play", nargs="+", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
