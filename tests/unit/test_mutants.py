"""The list of planted bugs fits the sources. Whether the simulator finds them: ``make mutants``."""

import pytest

from berth.sim.profiles import PROFILES
from tools.mutants import MUTANTS, SOURCES, Mutant, plant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_planted_bug_changes_one_place_of_a_file_that_still_compiles(mutant: Mutant) -> None:
    planted = plant(mutant, SOURCES)
    assert planted != (SOURCES / mutant.path).read_text()
    compile(planted, str(mutant.path), "exec")
    assert mutant.profile in PROFILES


def test_there_are_enough_of_them_and_each_has_a_name_of_its_own() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 40
