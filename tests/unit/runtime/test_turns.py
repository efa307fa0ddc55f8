"""Processes that take turns, with real processes."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from berth.runtime.turns import Turns

_FORK = multiprocessing.get_context("fork")


@contextmanager
def another(turns: Turns, script: Callable[[Turns, Connection], None]) -> Iterator[tuple[int, Connection]]:
    """Another process that shares the turns; its pid, and a line to it."""
    here, there = _FORK.Pipe()
    process = _FORK.Process(target=script, args=(turns, there))
    process.start()
    try:
        assert process.pid is not None
        yield process.pid, here
    finally:
        process.kill()
        process.join()


def hold_until_asked(turns: Turns, line: Connection) -> None:
    asyncio.run(turns.take())
    line.send("mine")
    line.recv()
    turns.give()
    line.send("given")
    line.recv()


async def test_a_process_that_keeps_its_turn_has_nothing_to_catch_up_with() -> None:
    turns = Turns()
    found = []
    for _ in range(3):
        found.append(await turns.take())
        turns.give()
    # Before the first turn nobody in particular had it: that may have been anyone.
    assert found == [True, False, False]


async def test_take_says_that_another_had_the_turn() -> None:
    turns = Turns()
    with another(turns, hold_until_asked) as (_, line):
        assert line.recv() == "mine"
        line.send("give")
        assert line.recv() == "given"
        assert await turns.take() is True


async def test_a_process_that_waits_gets_the_turn_when_it_is_given() -> None:
    turns = Turns()
    with another(turns, hold_until_asked) as (_, line):
        assert line.recv() == "mine"
        waiting = asyncio.create_task(turns.take())
        await asyncio.sleep(0)
        line.send("give")
        assert await waiting is True


async def test_nobody_waits_for_ever_for_one_that_is_stopped_or_dead() -> None:
    turns = Turns()
    with another(turns, hold_until_asked) as (pid, line):
        assert line.recv() == "mine"
        os.kill(pid, signal.SIGSTOP)
        assert await turns.take() is False
        turns.give()  # which it had not, so that there are not two from now on
        assert await turns.take() is False
        os.kill(pid, signal.SIGCONT)
        line.send("give")
        assert line.recv() == "given"
        assert await turns.take() is True
        turns.give()
        assert await turns.take() is False, "it had been given by this process last"


def leave_some(turns: Turns, line: Connection) -> None:
    asyncio.run(turns.take())
    for index in range(5, 9):
        turns.leave(index, b"%d" % index * index)
    turns.give()
    line.send("left")
    line.recv()


async def test_what_was_left_is_found_by_the_next_without_a_gap() -> None:
    turns = Turns()
    with another(turns, leave_some) as (_, line):
        assert line.recv() == "left"
        assert turns.left_behind(4) == [], "it is for those whose turn it is"
        await turns.take()
        assert turns.left_behind(4) == [b"%d" % index * index for index in range(5, 9)]
        assert turns.left_behind(6) == [b"7" * 7, b"8" * 8]
        assert turns.left_behind(3) == []
        assert turns.left_behind(8) == []


async def test_what_is_left_has_a_bound() -> None:
    turns = Turns()
    await turns.take()
    for index in range(1, 200):
        turns.leave(index, bytes(1000))
        assert turns.left_behind(index - 1) == [bytes(1000)]
    turns.leave(200, bytes(1 << 20))
    assert turns.left_behind(199) == []
    turns.leave(201, b"x")
    assert turns.left_behind(200) == [b"x"]
    turns.give()
    turns.leave(202, b"y")
    await turns.take()
    assert turns.left_behind(201) == [], "nothing is left by those whose turn it is not"


def leave_and_hold(turns: Turns, line: Connection) -> None:
    asyncio.run(turns.take())
    turns.leave(1, b"half")
    line.send("mine")
    line.recv()


async def test_a_turn_that_died_with_its_holder_is_given_to_the_others() -> None:
    turns = Turns()
    with another(turns, leave_and_hold) as (pid, line):
        assert line.recv() == "mine"
        turns.recover(os.getpid())
        assert turns._last_holder() is None, "somebody else's death is nothing to its holder"
        os.kill(pid, signal.SIGKILL)
        turns.recover(pid)
        assert await turns.take() is True
        assert turns.left_behind(0) == [], "what it left may be half written"
        turns.leave(2, b"whole")
        assert turns.left_behind(1) == [b"whole"]
        turns.give()
        turns.recover(pid)
        assert turns._last_holder() == os.getpid()
        assert turns._last_holder() is None, "there is one turn"


def die_when_it_comes(turns: Turns, line: Connection) -> None:
    """Wait for the turn, and be killed when it has come and the one that waits has not gone on yet."""
    last_holder = turns._last_holder

    def look() -> int | None:
        holder = last_holder()
        if holder is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return holder

    turns._last_holder = look  # type: ignore[method-assign]
    asyncio.run(turns.take())


def test_a_turn_that_died_on_its_way_to_its_holder_is_given_to_the_others() -> None:
    turns = Turns()
    with another(turns, die_when_it_comes) as (pid, _):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        turns.recover(pid)
        assert turns._last_holder() == pid
