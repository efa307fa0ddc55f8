"""The simulator's event loop: its time is virtual, its processes die, and its order is always the same."""

import asyncio
import contextlib
import gc
import threading
from collections.abc import AsyncIterator

import pytest

from berth.sim.loop import LIFE, Life, NeverRests, StandsStill, VirtualLoop
from berth.sim.world import World


def virtual_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


# -- time ---------------------------------------------------------------------------------------


async def test_time_jumps_to_the_next_timer() -> None:
    loop = virtual_loop()
    start_s = loop.time()
    seen: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((name, loop.time() - start_s))

    await asyncio.gather(sleeper("day", 86_400), sleeper("second", 1), sleeper("hour", 3600))
    assert seen == [("second", 1), ("hour", 3600), ("day", 86_400)]


async def test_timers_of_one_moment_run_in_the_order_in_which_they_were_set() -> None:
    loop, seen = virtual_loop(), list[int]()
    when_s = loop.time() + 5
    for number in range(50):
        loop.call_at(when_s, seen.append, number)
    await asyncio.sleep(5)
    assert seen == list(range(50))


async def test_time_does_not_pass_for_a_timer_that_was_cancelled() -> None:
    loop, seen = virtual_loop(), list[int]()
    start_s = loop.time()
    for number in range(1000):
        loop.call_later(10 + number, seen.append, number).cancel()
    kept = loop.call_later(5000, seen.append, -1)
    await asyncio.sleep(1)
    assert loop.time() == start_s + 1
    await asyncio.sleep(6000)
    assert seen == [-1]
    assert kept.when() == start_s + 5000


async def test_a_deadline_passes_in_virtual_time() -> None:
    start_s = virtual_loop().time()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3600):
            await asyncio.Event().wait()
    assert virtual_loop().time() == start_s + 3600


def test_a_loop_in_which_nothing_will_ever_happen_says_so() -> None:
    async def wait_for_ever() -> None:
        await asyncio.sleep(7)
        await asyncio.Event().wait()

    loop = VirtualLoop()
    try:
        with pytest.raises(StandsStill, match=r"after 7\.000000 s"):
            loop.run_until_complete(wait_for_ever())
    finally:
        loop.close()


@pytest.mark.parametrize("pause_s", [0, 1e-6])
def test_a_loop_that_hardly_lets_time_pass_says_so(pause_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.sim.loop.EVENTS_A_MINUTE_MAX", 5000)

    async def run_for_ever() -> None:
        await asyncio.sleep(70)
        while True:
            await asyncio.sleep(pause_s)

    loop = VirtualLoop()
    try:
        with pytest.raises(NeverRests, match=r"more than 5000 callbacks have run since 70\.000000 s"):
            loop.run_until_complete(run_for_ever())
    finally:
        loop.close()


async def test_a_loop_may_run_for_as_long_as_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.sim.loop.EVENTS_A_MINUTE_MAX", 400)
    await asyncio.sleep(60)
    started = virtual_loop().events
    for _ in range(1000):
        await asyncio.sleep(1)
    assert virtual_loop().events - started > 1000


# -- threads ------------------------------------------------------------------------------------


async def test_what_is_given_to_a_thread_is_done_at_once_and_here() -> None:
    start_s = virtual_loop().time()
    assert await asyncio.to_thread(threading.get_ident) == threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(lambda: 1 / 0)
    assert virtual_loop().time() == start_s


# -- processes ----------------------------------------------------------------------------------


async def test_a_process_that_is_killed_does_nothing_any_more() -> None:
    """Not even what a finally would do, nor when the garbage collector comes."""
    process = World(1).process("p")
    done: list[str] = []

    async def child() -> None:
        while True:
            await asyncio.sleep(1)
            done.append("child")

    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(100):
                yield number
        finally:
            done.append("generator")

    @contextlib.asynccontextmanager
    async def held() -> AsyncIterator[None]:
        try:
            yield
        finally:
            done.append("exit")

    async def work() -> None:
        asyncio.get_running_loop().call_later(10, done.append, "timer")
        children = [asyncio.create_task(child())]
        try:
            async with held():
                async for _ in numbers():
                    await asyncio.sleep(2)
        finally:
            done.append("finally")
            del children

    process.spawn(work())
    await asyncio.sleep(3.5)
    assert done == ["child", "child", "child"]
    process.kill()
    assert not process.is_alive
    assert process.tasks == 0
    assert process.ended.done()
    await asyncio.sleep(100)
    gc.collect()
    await asyncio.sleep(100)
    assert done == ["child", "child", "child"]


def test_no_event_loop_is_made_for_what_the_dead_still_do_when_they_are_thrown_away() -> None:
    """asyncio makes one for whoever needs one while none runs, and nobody closes it."""
    reached: list[str] = []

    async def wait_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reached.append("finally")
            await asyncio.gather()

    async def main() -> None:
        World(1).process("p").spawn(wait_for_ever())
        await asyncio.sleep(1)

    policy = asyncio.DefaultEventLoopPolicy()
    asyncio.set_event_loop_policy(policy)
    loop = VirtualLoop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
        made = policy._local._loop  # type: ignore[attr-defined]
        asyncio.set_event_loop_policy(None)
        if made is not None:
            made.close()
    assert reached == ["finally"]
    assert made is None


async def test_whoever_waits_for_a_process_that_is_killed_is_not_woken_by_its_end() -> None:
    process = World(1).process("p")
    task = process.spawn(asyncio.sleep(10))
    process.kill()
    done, waiting = await asyncio.wait((task, process.ended), return_when=asyncio.FIRST_COMPLETED)
    assert (done, waiting) == ({process.ended}, {task})


async def test_a_process_may_be_killed_by_itself_and_between_the_end_of_a_task_and_its_callbacks() -> None:
    process = World(1).process("p")
    seen: list[str] = []

    async def suicide() -> None:
        process.kill()
        seen.append("to the next await")
        await asyncio.sleep(0)
        seen.append("beyond it")

    process.spawn(suicide())
    await asyncio.sleep(1)
    assert seen == ["to the next await"]

    other = World(1).process("q")
    task = other.spawn(asyncio.sleep(0))
    while not task.done():
        await asyncio.sleep(0)
    other.kill()
    await asyncio.sleep(1)
    assert other.tasks == 0


async def test_others_live_on_when_one_is_killed() -> None:
    world = World(1)
    first, second = world.process("first"), world.process("second")
    seen: list[str] = []

    async def tick(name: str) -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            seen.append(name)

    first.spawn(tick("first"))
    second.spawn(tick("second"))
    await asyncio.sleep(1.5)
    first.kill()
    await asyncio.sleep(10)
    assert seen == ["first", "second", "second", "second"]


async def test_what_the_world_does_happens_whoever_dies() -> None:
    world = World(1)
    process, seen = world.process("p"), list[str]()

    async def work() -> None:
        world.call_later(5, lambda: seen.append("happened"))

    process.spawn(work())
    await asyncio.sleep(1)
    process.kill()
    await asyncio.sleep(10)
    assert seen == ["happened"]


async def test_time_does_not_pass_for_the_timers_of_the_dead() -> None:
    loop, process = virtual_loop(), World(1).process("p")
    process.spawn(asyncio.sleep(5))
    await asyncio.sleep(0)
    process.kill()
    start_s = loop.time()
    await asyncio.sleep(8)
    assert loop.time() == start_s + 8


def test_a_loop_is_closed_though_the_dead_have_left_much_behind() -> None:
    done: list[str] = []

    async def main() -> None:
        process = World(1).process("p")

        async def work() -> None:
            try:
                await asyncio.sleep(1)
            finally:
                await asyncio.sleep(1)
                done.append("finally")

        process.spawn(work())
        await asyncio.sleep(0.5)
        process.kill()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    assert done == []


# -- order --------------------------------------------------------------------------------------


async def test_tasks_and_futures_are_hashed_by_a_number_that_is_counted() -> None:
    loop = virtual_loop()
    tasks = [loop.create_task(asyncio.sleep(0)) for _ in range(20)]
    futures = [loop.create_future() for _ in range(20)]
    for made in (tasks, futures):
        hashes = [hash(one) for one in made]
        assert hashes == list(range(hashes[0], hashes[0] + 20))
    await asyncio.gather(*tasks)


async def test_a_callback_belongs_to_the_process_in_which_it_was_scheduled() -> None:
    process = World(1).process("p")
    seen: list[Life | None] = []

    async def work() -> None:
        asyncio.get_running_loop().call_soon(lambda: seen.append(LIFE.get()))
        await asyncio.create_task(asyncio.sleep(1))
        seen.append(LIFE.get())

    process.spawn(work())
    await asyncio.sleep(2)
    assert [str(life) for life in seen] == ["p", "p"]
    assert LIFE.get() is None


async def test_luck_for_one_purpose_does_not_depend_on_other_luck() -> None:
    first, second = World(7), World(7)
    second.rng("network").random()
    assert first.rng("database").random() == second.rng("database").random()
    assert first.rng("database").random() != first.rng("network").random()
    ids = [world.process("p").ids.uuid() for world in (first, second, first)]
    assert ids[0] == ids[1] != ids[2], "of a process that is started again, the luck is another"


async def test_clocks_drift_and_jump() -> None:
    world = World(1)
    true, fast = world.process("true"), world.process("fast", drift=0.01, ahead_s=30)
    begun = [(one.clock.now_ns(), one.clock.monotonic_ns()) for one in (true, fast)]
    await asyncio.sleep(100)
    passed = [one.clock.monotonic_ns() - start for one, (_, start) in zip((true, fast), begun, strict=True)]
    assert passed == pytest.approx([100e9, 101e9], rel=1e-6)
    before_ns, unmoved_ns = fast.clock.now_ns(), fast.clock.monotonic_ns()
    fast.clock.jump(-3600)
    assert fast.clock.now_ns() == before_ns - 3600 * 10**9
    assert fast.clock.monotonic_ns() == unmoved_ns


# -- being frozen -------------------------------------------------------------------------------


async def test_a_process_that_is_frozen_goes_on_where_it_was_when_it_is_thawed() -> None:
    world, seen = World(1), list[float]()
    process = world.process("sleeper")
    start_s = world.loop.time()

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            seen.append(world.loop.time() - start_s)

    process.spawn(tick())
    await asyncio.sleep(2.5)
    process.freeze()
    await asyncio.sleep(100)
    assert seen == [1, 2]
    process.thaw()
    await asyncio.sleep(1.5)
    assert seen == [1, 2, 102.5, 103.5], "the timer that was due fires late, and once"
    process.kill()


async def test_a_process_that_dies_while_it_is_frozen_does_nothing_any_more() -> None:
    world, seen = World(1), list[str]()
    process = world.process("sleeper")

    async def speak() -> None:
        await asyncio.sleep(1)
        seen.append("alive")

    process.spawn(speak())
    process.freeze()
    await asyncio.sleep(5)
    process.kill()
    process.thaw()
    await asyncio.sleep(5)
    assert not seen


# -- dying at an await --------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 1, 5])
async def test_a_process_dies_when_it_has_gone_on_so_many_times(steps: int) -> None:
    world, seen = World(1), list[int]()
    process = world.process("counted")

    async def go_on() -> None:
        for number in range(1, 100):
            seen.append(number)
            await asyncio.sleep(number % 2)

    process.die_after(steps, process.kill)
    process.spawn(go_on())
    await asyncio.sleep(200)
    assert not process.is_alive
    # Every second pause is a timer, which is one more step.
    assert len(seen) == {0: 0, 1: 1, 5: 3}[steps]


async def test_a_process_that_was_to_die_lives_on() -> None:
    world, seen = World(1), list[int]()
    process = world.process("counted")

    async def go_on() -> None:
        for number in range(10):
            seen.append(number)
            await asyncio.sleep(1)

    process.die_after(5, process.kill)
    process.spawn(go_on())
    await asyncio.sleep(1.5)
    process.live_on()
    await asyncio.sleep(20)
    assert process.is_alive
    assert len(seen) == 10


async def test_a_process_that_is_frozen_is_not_counted() -> None:
    world, seen = World(1), list[str]()
    process = world.process("counted")

    async def speak() -> None:
        seen.append("alive")

    process.freeze()
    process.die_after(1, process.kill)
    process.spawn(speak())
    await asyncio.sleep(5)
    assert process.is_alive
    assert not seen
    process.thaw()
    await asyncio.sleep(5)
    assert seen == ["alive"]
