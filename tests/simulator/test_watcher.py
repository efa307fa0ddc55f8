"""The client of the event stream: each of its checks finds the bug that is planted for it."""

from typing import Any

import pytest

from berth.api.native import events
from berth.api.native.event_pages import pruned_problem, reach
from berth.api.native.events import Feed, Rendered
from berth.model.ids import Index
from tests.simulator.planting import find_failure

MINUTES = 3


def test_a_stream_that_resumes_too_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "reach", lambda after, current: reach(min(after + 1, current), current))
    expected = "the event stream goes from index"
    assert expected in find_failure("claims", MINUTES, expected)


def test_a_stream_that_tells_something_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept_after = Feed._kept_after
    monkeypatch.setattr(Feed, "_kept_after", lambda self, index: kept_after(self, Index(index - 1)))
    expected = "the event stream goes from index"
    assert expected in find_failure("claims", MINUTES, expected)


def test_an_id_before_the_last_event_of_its_index_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    render = events._render

    async def render_early(batch: Any, names: Any) -> bytes:
        whole = await render(batch, names)
        first, _, rest = whole.partition(b"\n\n")
        return b"%b\nid: %d\n\n%b" % (first, batch.index, rest) if rest else whole

    monkeypatch.setattr(events, "_render", render_early)
    expected = "the event stream tells"
    assert expected in find_failure("claims", MINUTES, expected)


def test_a_journal_that_is_taken_for_pruned_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "pruned_problem", lambda oldest: pruned_problem(Index(oldest + 1)))
    expected = "as if the journal began at"
    assert expected in find_failure("claims", MINUTES, expected, seed=10)


def test_a_stream_that_leaves_something_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep_most(self: Feed, rendered: Rendered) -> None:
        keep(self, rendered)
        if rendered.index % 20 == 0:
            self._kept.pop()

    keep = Feed._keep
    monkeypatch.setattr(Feed, "_keep", keep_most)
    expected = "the event stream goes from index"
    assert expected in find_failure("claims", MINUTES, expected)
