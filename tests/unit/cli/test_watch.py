"""Questions that are repeated: line by line as JSON, in place on a terminal, and while the region is away."""

import argparse
import asyncio
import contextlib
import io
import json
from typing import Any

import pytest

from berth.cli.command import CommandError
from berth.cli.output import Screen
from berth.cli.question import Question
from berth.client import Client, ClientError, Unreachable

pytestmark = pytest.mark.fast


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def watch(answers: list[Any], stream: io.StringIO, *, as_json: bool = False) -> str:
    """What is printed of these answers, one after the other; exceptions are raised."""
    is_over = asyncio.Event()
    given = iter(answers)

    async def fetch(client: Client, arguments: argparse.Namespace) -> Any:
        answer = next(given, None)
        if answer is None:
            is_over.set()
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return {"answer": answer}

    question = Question(fetch, lambda data, arguments: f"answer {data['answer']}")
    arguments = argparse.Namespace(watch=True, interval=0.001, json=as_json)
    asking = asyncio.create_task(question.answer(arguments, Client("http://region:1"), Screen(stream)))
    over = asyncio.create_task(is_over.wait())
    await asyncio.wait((asking, over), return_when=asyncio.FIRST_COMPLETED, timeout=10)
    asking.cancel()
    over.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    return stream.getvalue()


async def test_answers_are_printed_one_after_the_other() -> None:
    assert await watch([1, 2], io.StringIO()) == "answer 1\n\nanswer 2\n\n"


async def test_each_answer_is_a_line_of_json() -> None:
    text = await watch([1, 2], io.StringIO(), as_json=True)
    assert [json.loads(line) for line in text.splitlines()] == [{"answer": 1}, {"answer": 2}]


async def test_a_region_that_is_away_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    text = await watch([1, Unreachable("no answer"), 2], io.StringIO(), as_json=True)
    assert [json.loads(line) for line in text.splitlines()] == [{"answer": 1}, {"answer": 2}]
    assert capsys.readouterr().err == "berth: lost, retrying: no answer\n"


async def test_on_a_terminal_the_last_answer_stays_while_the_region_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = await watch([1, Unreachable("GET /x: no answer from http://region:1"), 2], Terminal())
    before, lost, after = text.partition("lost, retrying: GET /x: no answer from http://region:1")
    assert before.count("answer 1") == 2
    assert lost
    assert "answer 2" in after


async def test_a_refusal_ends_it() -> None:
    with pytest.raises(CommandError, match="answered 403"):
        await watch([1, ClientError("answered 403", 403)], Terminal())
