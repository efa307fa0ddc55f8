"""The saga that docs/guides/add-an-operation.md shows is found, carried out, and ends as the guide says."""

import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from berth.sagas import saga as sagas
from berth.sagas.saga import Saga
from berth.sagas.table import Ending, find_failure, find_success
from tests.servers import ROOT
from tests.unit.sagas.regions import Faults, Region, S, prepared

pytestmark = pytest.mark.fast

GUIDE = ROOT / "docs" / "guides" / "add-an-operation.md"


@pytest.fixture
def restart(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the guide, as if it stood beside the others."""
    [code] = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    module = ModuleType("berth.sagas.restart")
    exec(compile(code, str(GUIDE), "exec"), vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    found = (*sagas.all_sagas(), module.SAGA)
    monkeypatch.setattr(sagas, "all_sagas", lambda: found)
    sagas._by_key.cache_clear()
    yield module
    sagas._by_key.cache_clear()


def restarted(restart: Any, faults: Faults) -> Region:
    region = prepared("stop")
    assert region.tries(lambda view, now_s: restart.propose(view, now_s, region.context(), S)) is None
    assert region.server(S).task == "powering-on"
    region.carry_out(faults)
    assert region.server(S).task is None
    return region


def test_it_ends_as_the_table_says(restart: Any) -> None:
    saga: Saga = restart.SAGA
    assert find_success(saga) == Ending("active", "dest")
    assert [find_failure(saga, number) for number in range(2)] == [
        Ending("as before", "dest"),
        Ending("stopped", "dest"),
    ]


@pytest.mark.parametrize(("fails", "state"), [(None, "active"), ("stop", "active"), ("start", "stopped")])
def test_the_saga_of_the_guide_is_executed(restart: Any, fails: str | None, state: str) -> None:
    faults = Faults([] if fails is None else [fails])
    region = restarted(restart, faults)
    server = region.server(S)
    assert server.state == state
    assert (server.fault is None) == (fails is None)
    assert region.held(S)
