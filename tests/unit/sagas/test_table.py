"""The page in the docs is that of the program, and the program has a word for everything in it."""

from typing import get_args

import pytest

from berth.sagas.saga import PLACEMENT, ClaimChange, Verb, all_sagas
from berth.sagas.table import CHANGES, VERBS, find_failure, find_success, render_page
from tests.servers import ROOT

pytestmark = pytest.mark.fast


def test_the_page_is_that_of_the_program() -> None:
    assert (ROOT / "docs" / "guides" / "operations.md").read_text() == render_page(), "run: make docs"


def test_every_step_of_every_operation_is_on_it() -> None:
    rows = render_page().splitlines()
    for saga in all_sagas():
        for step in saga.steps:
            assert len([row for row in rows if row.startswith(f"| {saga.name} | {step.name} |")]) == 1


def test_every_verb_and_change_is_explained() -> None:
    assert tuple(VERBS) == get_args(Verb)
    assert tuple(CHANGES) == get_args(ClaimChange)
    used = {step.do for saga in all_sagas() for step in saga.steps}
    used |= {step.undo for saga in all_sagas() for step in saga.steps if step.undo is not None}
    assert used <= VERBS.keys() | CHANGES.keys()


def test_a_step_is_a_verb_or_a_change_according_to_where_it_is() -> None:
    for saga in all_sagas():
        for step in saga.steps:
            known: object = CHANGES if step.at == PLACEMENT else VERBS
            assert step.do in known, (saga.name, step)  # type: ignore[operator]
            assert step.undo is None or step.undo in known, (saga.name, step)  # type: ignore[operator]


def test_what_an_operation_says_it_leaves_is_what_its_steps_leave() -> None:
    """``failed.holds`` is what is held after the first step that can fail has."""
    for saga in all_sagas():
        failures = [find_failure(saga, number) for number in range(len(saga.steps))]
        first = next((failure for failure in failures if failure is not None), None)
        if first is not None:
            assert first.holds == saga.failed.holds, saga.name
        assert find_success(saga).holds == saga.done.holds


def test_only_changes_in_placement_are_retried_until_done() -> None:
    again = [step for saga in all_sagas() for step in saga.steps if step.on_failure == "retry"]
    assert again
    assert {step.at for step in again} == {PLACEMENT}
