"""A saga run that goes through two cells: which copy counts, whatever is delivered late or twice, and what a
region does that knows nothing of it."""

from typing import Final

import msgspec

from berth.cell import saga_runs
from berth.ledger import decide
from berth.model.commands import Enact
from berth.model.rejections import RecordMoved, Rejection
from berth.model.saga_runs import ClaimSnapshot, Instance, Outbox, SagaRun, Spec
from berth.model.servers import Action, Flavor, Place, UnknownServer
from berth.region.cell_records import apply_progress
from berth.region.discrepancies import CellKnows, correct_record
from berth.sagas import runner
from berth.view import View

SERVER: Final = "50000000-0000-4000-8000-000000000001"
SOURCE: Final = Place("00000000-0000-4000-8000-000000000001", "one", "cell1")
DEST: Final = Place("00000000-0000-4000-8000-000000000002", "two", "cell2")
SPEC: Final = Spec("s", "p", "u", Flavor(id="f", name="f", vcpus=1, memory_mb=1, disk_gb=1))


def make_run(number: int = 1, id: str = "run-1", saga: str = "migrate") -> SagaRun:
    return SagaRun(
        id=id,
        number=number,
        server=SERVER,
        saga=saga,
        request_id="req-1",
        spec=SPEC,
        project="p",
        user="u",
        source=SOURCE,
        dest=DEST,
        claim=ClaimSnapshot((), None),
        migration="m",
        migration_claim=ClaimSnapshot((), None),
        cells=("cell1", "cell2"),
    )


def write(view: View, command: Enact | Rejection | None) -> None:
    assert isinstance(command, Enact)
    events = decide(view, command, 0)
    assert not isinstance(events, Rejection), events
    for event in events:
        view.apply(event)


def copy_in(view: View, id: str = "run-1") -> SagaRun | None:
    return view.records.get(SagaRun, id)


class Cells:
    """Two cells, and a region that hands the run from one to the other."""

    def __init__(self) -> None:
        self.source, self.dest = View(), View()
        write(self.source, saga_runs.accept_run(self.source, make_run(), 0))

    def advance(self, view: View, error: str | None = None) -> SagaRun:
        """Do the step that a run is at, in a cell that has it."""
        before = copy_in(view)
        assert before is not None
        assert not runner.is_away(before)
        after = runner.record_success(before, 1) if error is None else runner.record_failure(before, 1, error)
        write(view, saga_runs.advance_run(view, 0, before, lambda _: after, 0))
        return after

    def hand_over(self, giver: View, taker: View) -> SagaRun:
        before = copy_in(giver)
        assert before is not None
        assert runner.is_away(before)
        handed = runner.hand_over(before)
        write(taker, saga_runs.accept_run(taker, handed, 2))
        return handed


def test_a_run_is_away_while_another_cell_has_the_next_step() -> None:
    cells = Cells()
    first = copy_in(cells.source)
    assert first is not None
    assert not runner.is_away(first)
    claimed = cells.advance(cells.source)
    assert runner.is_away(claimed)
    assert runner.cell_of(claimed) == "cell2"
    handed = cells.hand_over(cells.source, cells.dest)
    assert handed.cells == ("cell2", "cell1")
    assert handed.version == claimed.version + 1
    prepared = cells.advance(cells.dest)
    assert runner.cell_of(prepared) == "cell1"
    cells.hand_over(cells.dest, cells.source)
    assert runner.cell_of(cells.advance(cells.source)) == "cell2"


def test_what_is_delivered_late_or_twice_changes_nothing() -> None:
    cells = Cells()
    cells.advance(cells.source)
    first = cells.hand_over(cells.source, cells.dest)
    assert saga_runs.accept_run(cells.dest, first, 3) is None
    cells.advance(cells.dest)
    cells.hand_over(cells.dest, cells.source)
    # The cell has given the run away since: it does not begin again with what it had before.
    assert saga_runs.accept_run(cells.dest, first, 3) is None
    assert saga_runs.accept_run(cells.source, make_run(), 3) is None


def test_allocations_change_in_the_cell_of_the_source() -> None:
    """The assignments there follow them: what another cell has done would be missed."""
    cells = Cells()
    cells.advance(cells.source)
    cells.hand_over(cells.source, cells.dest)
    cells.advance(cells.dest, error="no room")
    undone = cells.advance(cells.dest)
    assert (undone.phase, undone.step) == ("back", 0)
    assert runner.cell_of(undone) == "cell1"


def test_the_end_is_told_to_every_cell_and_is_final() -> None:
    cells = Cells()
    cells.advance(cells.source)
    cells.hand_over(cells.source, cells.dest)
    ended = msgspec.structs.replace(
        runner.hand_over(cells.advance(cells.dest)), phase="done", step=3, cells=("cell2", "cell1")
    )
    told = runner.tell_end(ended)
    assert set(told) == {"cell1"}
    write(cells.source, saga_runs.accept_run(cells.source, told["cell1"], 3))
    instance = cells.source.records.get(Instance, SERVER)
    assert instance is not None
    assert instance.hosts == (SOURCE.id,)
    write(cells.source, saga_runs.remove_finished(cells.source, "run-1"))
    assert saga_runs.accept_run(cells.source, told["cell1"], 4) is None
    assert saga_runs.accept_run(cells.source, runner.hand_over(runner.hand_over(make_ready())), 4) is None


def make_ready() -> SagaRun:
    return runner.record_success(make_run(), 1)


def test_the_next_run_waits_for_the_end_of_the_one_before() -> None:
    """A cell that has not heard of that end would put it after what has come since."""
    cells = Cells()
    cells.advance(cells.source)
    later = msgspec.structs.replace(make_run(2, "run-2", "confirm"))
    assert isinstance(saga_runs.accept_run(cells.source, later, 3), RecordMoved)
    away = copy_in(cells.source)
    assert away is not None
    ended = msgspec.structs.replace(away, phase="failed", cells=("cell1",))
    write(cells.source, saga_runs.accept_run(cells.source, ended, 3))
    write(cells.source, saga_runs.accept_run(cells.source, later, 3))


def test_a_cell_that_did_nothing_for_a_run_knows_its_number() -> None:
    view = View()
    ended = msgspec.structs.replace(make_run(5, saga="confirm"), phase="done", step=2, cells=("cell2",))
    write(view, saga_runs.accept_run(view, ended, 3))
    assert saga_runs.last_number(view, SERVER) == 5
    instance = view.records.get(Instance, SERVER)
    assert instance is not None
    assert instance.hosts == (DEST.id,)


def test_an_abort_that_misses_a_run_meets_it_when_it_comes_back() -> None:
    cells = Cells()
    away = cells.advance(cells.source)
    cells.hand_over(cells.source, cells.dest)
    write(cells.source, saga_runs.abort_run(cells.source, "run-1"))
    noted = copy_in(cells.source)
    assert noted is not None
    # It is the other cell that counts versions now.
    assert (noted.abort, noted.version) == (True, away.version)
    cells.advance(cells.dest)
    cells.hand_over(cells.dest, cells.source)
    back = copy_in(cells.source)
    assert back is not None
    assert back.abort


def test_a_region_without_a_record_of_the_run_hands_it_over_all_the_same() -> None:
    """It was restored from an older backup: the run would wait in both cells for ever."""
    region, away = View(), make_ready()
    write(region, apply_progress(region, away, 0))
    [outbox] = region.records.all(Outbox)
    assert (outbox.cell, outbox.run) == ("cell2", runner.hand_over(away))
    assert apply_progress(region, away, 0) is None
    ended = msgspec.structs.replace(away, phase="failed", version=9)
    write(region, apply_progress(region, ended, 0))
    told = [one for one in region.records.all(Outbox) if one.id != "run-1"]
    assert [(one.cell, one.run and one.run.cells) for one in told] == [("cell2", ("cell2",))]


def test_progress_and_handing_over_are_one_change() -> None:
    region, away = View(), make_ready()
    action = Action(
        id="run-1",
        server=SERVER,
        name="migrate",
        request_id="req-1",
        project="p",
        user="u",
        started_at_s=0,
        updated_at_s=0,
    )
    region.records.change(None, action)
    command = apply_progress(region, away, 0)
    assert isinstance(command, Enact)
    kinds = {type(one.after) for one in command.changes}
    assert kinds == {Action, Outbox}
    write(region, command)
    assert apply_progress(region, away, 0) is None


def test_of_two_cells_with_an_unknown_server_the_one_with_its_sheet_is_heard() -> None:
    """Otherwise each would put its own record in the place of the other's, again and again."""
    region = View()
    source = CellKnows(Instance(id=SERVER, hosts=(SOURCE.id,), last=3))
    dest = CellKnows(Instance(id=SERVER, hosts=(DEST.id,), last=3, sheet="a sheet"))
    write(region, correct_record(region, "cell1", SERVER, source, 0))
    write(region, correct_record(region, "cell2", SERVER, dest, 0))
    assert correct_record(region, "cell1", SERVER, source, 0) is None
    [unknown] = region.records.all(UnknownServer)
    assert (unknown.cell, unknown.sheet) == ("cell2", "a sheet")
