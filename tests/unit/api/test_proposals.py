"""What an API refuses in the writer's turn is a rejection that it returns; what is raised there is a bug."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import berth.api
from berth.api.compute import flavors
from berth.api.kernel.problem import Problem
from berth.model import rejections
from tests.worlds import RegionWorld

pytestmark = pytest.mark.fast

API = Path(berth.api.__file__).parent
SKINS = ("compute", "identity", "image", "native", "placement")
RAISING = {"accept", "require", "require_of", "decode", "convert"}
"""Methods of a call that raise a Problem."""

REFUSAL = Problem(409, "refused by raising")


async def test_a_problem_that_is_raised_in_a_proposal_is_a_bug(
    region: RegionWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise REFUSAL

    flavor = {"flavor": {"name": "new", "vcpus": 1, "ram": 1, "disk": 1}}
    with monkeypatch.context() as patch:
        patch.setattr(flavors, "_replace_flavor", refuse)
        answer = await region.compute("POST", "/flavors", flavor)
    assert answer.status == 500
    assert "refused by raising" not in answer.body.decode()
    assert "refused by raising" in caplog.text
    metrics = (await region.ask("GET", "/metrics")).body.decode()
    counted = 'berth_requests_total{method="POST",route="/compute/v2.1/flavors",status="500"} 1.0'
    assert counted in metrics
    assert "berth_rejections_total{" not in metrics
    assert (await region.compute("POST", "/flavors", flavor)).status == 200, "the writer goes on"


async def test_a_problem_that_is_raised_in_an_answer_to_a_change_is_a_bug(
    region: RegionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise REFUSAL

    with monkeypatch.context() as patch:
        patch.setattr(flavors, "_show_whole", refuse)
        flavor = {"flavor": {"name": "new", "vcpus": 1, "ram": 1, "disk": 1}}
        assert (await region.compute("POST", "/flavors", flavor)).status == 500


# -- as it is written ---------------------------------------------------------------------------


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of the APIs that take part in a proposal: they return a rejection, or get its time."""
    kinds = set(rejections.__all__) - {"Advice", "ConstraintStep"}
    for skin in SKINS:
        for path in sorted((API / skin).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.FunctionDef):
                    continue
                names = {one.id for one in ast.walk(node.returns or node) if isinstance(one, ast.Name)}
                is_given_time = any(argument.arg == "now_s" for argument in node.args.args)
                if is_given_time or (node.returns is not None and names & kinds):
                    yield f"{skin}/{path.name}:{node.name}", node


def test_nothing_that_returns_a_rejection_raises_a_problem() -> None:
    found = list(functions())
    assert len(found) > 80, "the proposals of all APIs are found"
    raising = [
        f"{name}: line {part.lineno}"
        for name, function in found
        for part in ast.walk(function)
        if isinstance(part, ast.Raise)
        or (
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Attribute)
            and part.func.attr in RAISING
            and ast.unparse(part.func.value) == "call"
        )
    ]
    assert raising == []
