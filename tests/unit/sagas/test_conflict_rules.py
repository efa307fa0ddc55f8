"""The rules for conflicts as a table: every operation, every policy, every kind of foreign write, at every
moment, on the server's allocations and on its migration's (docs/guides/conflicts.md)."""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import pytest

from berth.doctor.findings import examine
from berth.model import commands as c
from berth.model.ids import ConsumerId, ProviderId
from berth.model.rejections import Rejection, ServerChangedByOthers, ServerHoldsAlready
from berth.model.saga_runs import SagaRun
from berth.model.servers import ConflictPolicy, Held, Migration, Server
from berth.sagas.conflicts import held_now, same
from berth.sagas.saga import find_saga
from tests.unit.sagas.regions import BANDWIDTH, Faults, Region, S, nic_id, prepared

pytestmark = pytest.mark.fast

Kind = Literal["same", "more", "less", "gone"]
Victim = Literal["server", "migration"]

MOVES: Final = ("resize", "migrate", "live_migrate", "evacuate")
PLACED: Final = ("create", "unshelve", *MOVES)
UNJUDGED: Final = ("create", "rebuild", "shelve", "start", "stop", "unshelve_here")
OPERATIONS: Final = (
    *PLACED,
    *("confirm", "revert", "delete", "forced delete", "shelve_offload", "shelve_away"),
    *UNJUDGED[1:],
)
POLICIES: Final[tuple[ConflictPolicy, ...]] = ("fail", "retry", "merge")
KINDS: Final[tuple[Kind, ...]] = ("same", "more", "less", "gone")

# -- the rules ----------------------------------------------------------------------------------

RELEASES: Final[dict[str, set[Victim]]] = {
    "delete": {"server", "migration"},
    "shelve_offload": {"server"},
    "shelve_away": {"server"},
    "confirm": {"migration"},
}
"""Whose allocations an operation is to release: if they are gone, that is what was wanted."""

CHECKED: Final[dict[str, set[Victim]]] = {
    "delete": {"server", "migration"},
    "shelve_offload": {"server"},
    "shelve_away": {"server"},
    "confirm": {"migration"},
    "revert": {"server", "migration"},
}
"""Whose allocations the conductor looks at before it destroys anything."""

STOPPED_AS: Final = {
    "delete": "active",
    "shelve_offload": "shelved",
    "shelve_away": "active",
    "confirm": "resized",
    "revert": "error",
}
"""What the server is when that check has failed."""


def is_conflict(name: str, kind: Kind, victim: Victim) -> bool:
    if kind == "same":
        return False
    return kind != "gone" or victim not in RELEASES.get(name, set())


def is_refused_once(name: str, policy: ConflictPolicy, kind: Kind, victim: Victim) -> bool:
    """When it begins, after a foreign write."""
    return (
        policy == "fail"
        and name not in UNJUDGED
        and name != "forced delete"
        and is_conflict(name, kind, victim)
    )


def is_stopped(name: str, policy: ConflictPolicy, kind: Kind, victim: Victim, step: int) -> bool:
    """When the foreign write came before a step."""
    checks = [number for number, each in enumerate(saga(name).steps) if each.do == "check"]
    is_in_time = bool(checks) and step <= checks[0]
    is_looked_at = victim in CHECKED.get(name, set())
    return policy == "fail" and is_in_time and is_looked_at and is_conflict(name, kind, victim)


def added_after(name: str, policy: ConflictPolicy) -> int:
    """How much of what was added before the operation began the server has when it is done."""
    return 0 if policy == "retry" and name in ("revert", "unshelve", *MOVES) else 100


# -- foreign writes -----------------------------------------------------------------------------


class Write(NamedTuple):
    """A foreign write before the so-many-th step that is taken; 0: before the operation begins."""

    kind: Kind
    victim: Victim
    moment: int


def saga(name: str):  # type: ignore[no-untyped-def]
    return find_saga(name.removeprefix("forced "))


def consumer_of(region: Region, victim: Victim) -> str | None:
    if victim == "server":
        return S
    server = region.view.records.get(Server, S)
    return None if server is None else server.migration


def write(region: Region, kind: Kind, victim: Victim) -> bool:
    """Another client writes; False where there is nothing that it could write over."""
    consumer = consumer_of(region, victim)
    held = () if consumer is None else held_now(region.view, consumer)
    if consumer is None or (not held and (kind != "more" or victim == "migration")):
        return False
    type = "INSTANCE" if victim == "server" else "MIGRATION"
    match kind:
        case "same":
            region.claim(consumer, *held, type=type)
        case "more":
            region.claim(consumer, *_more(region, consumer, held), type=type)
        case "less":
            region.claim(consumer, *_less(held), type=type)
        case "gone":
            region.do(c.DeleteAllocations(ConsumerId(consumer)))
    return True


def _more(region: Region, consumer: str, held: Held) -> Held:
    name = region.hosts_of(consumer)[0] if held else "host-1"
    card = nic_id(int(name.removeprefix("host-")))
    others = tuple(part for part in held if part[0] != card)
    before = next((dict(amounts).get(BANDWIDTH, 0) for id, amounts in held if id == card), 0)
    return (*others, (card, ((BANDWIDTH, before + 100),)))


def _less(held: Held) -> Held:
    ((provider, amounts), *rest) = held
    fewer = tuple((name, n - 1) for name, n in amounts if name == "VCPU") or amounts[:1]
    others = tuple((name, n) for name, n in amounts if name not in dict(fewer))
    return ((provider, (*fewer, *others)), *rest)


def begin(region: Region, name: str, policy: ConflictPolicy) -> Rejection | None:
    if name == "forced delete":
        return region.begin("delete", S, policy, is_forced=True)
    return region.begin(name, S, policy)


class Run:
    """An operation with a foreign write in it. ``wrote_at``: the step before which that was."""

    def __init__(self, name: str, policy: ConflictPolicy, write: Write, faults: Faults | None = None) -> None:
        self.region = prepared(saga(name).name)
        self.name, self.policy, self.write = name, policy, write
        self.wrote_at: int | None = None
        self.moments = 0
        self._faults = faults or Faults()
        self.state_before = None if name == "create" else self.region.server(S).state
        self.source = None if name == "create" else self.region.server(S).place

    def carried_out(self) -> SagaRun:
        self.moments = 0
        self.region.watch = self._before_a_step
        saga_run = self.region.carry_out(self._faults)
        self.region.watch = None
        return saga_run

    def _before_a_step(self, saga_run: SagaRun) -> None:
        if saga_run.phase in ("done", "failed"):
            return
        self.moments += 1
        if self.moments == self.write.moment and write(self.region, self.write.kind, self.write.victim):
            self.wrote_at = saga_run.step if saga_run.phase == "forward" else len(saga(self.name).steps)

    # -- what must be so afterwards -------------------------------------------------------------

    def check_settled(self) -> None:
        """The server is on one host, holds nothing anywhere else, and holds nothing twice."""
        region, about = self.region, f"{self.name} {self.policy} {self.write}"
        server = region.view.records.get(Server, S)
        if server is None:
            assert region.held(S) == {}, about
            assert not region.migrations(S), about
            return
        assert (server.run, server.task) == (None, None), about
        places = [] if server.place is None else [server.place.name]
        assert [host for host in region.hosts_of(S) if host not in places] == [], about
        vcpus = sum(amounts.get("VCPU", 0) for amounts in region.held(S).values())
        assert vcpus <= server.flavor.vcpus, about
        waiting = {server.migration, *(m.id for m in region.migrations(S) if m.status == "done")}
        holding = {m.id for m in region.view.records.all(Migration) if region.held(m.id)}
        assert holding <= waiting, about
        for finding in examine(region.view, region.now_s):
            # A write after the last one of ours is somebody else's: it is shown, and nothing hides it.
            assert finding.kind.endswith(("wrong_allocations", "without_allocations")), (about, finding)

    def check_nothing_is_left(self) -> None:
        """Whatever has happened, a forced deletion releases everything."""
        region = self.region
        if region.view.records.get(Server, S) is not None:
            assert region.begin("delete", S, is_forced=True) is None
            if region.server_or_none(S) is not None:
                region.carry_out()
        if self.name == "evacuate" and self.source is not None:
            number = int(self.source.name.removeprefix("host-"))
            region.set_down(number, down=False)
            region.release(number)
        assert not region.view.consumers, f"{self.name} {self.policy} {self.write}"


def bandwidth(region: Region, consumer: str = S) -> int:
    return sum(amounts.get(BANDWIDTH, 0) for amounts in region.held(consumer).values())


# -- the table ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_write_before_it_begins(name: str, policy: ConflictPolicy, kind: Kind) -> None:
    for victim in victims(name):
        run = Run(name, policy, Write(kind, victim, 0))
        if not write(run.region, kind, victim):
            continue
        refused = begin(run.region, name, policy)
        if name == "create":
            assert refused == ServerHoldsAlready(S)
            continue
        if is_refused_once(name, policy, kind, victim):
            assert isinstance(refused, ServerChangedByOthers), refused
            found = run.region.server(S)
            assert found.conflict is not None
            assert (found.state, found.run) == (run.state_before, None)
            held = held_now(run.region.view, consumer_of(run.region, victim) or "")
            reported = found.conflict.held if victim == "server" else found.conflict.migration_held
            assert same(reported, held)
            refused = begin(run.region, name, policy)
        assert refused is None, refused
        assert run.carried_out().phase == "done"
        if kind == "more" and victim == "server" and run.region.held(S):
            assert bandwidth(run.region) == added_after(name, policy)
        run.check_settled()
        run.check_nothing_is_left()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_write_before_each_step(name: str, policy: ConflictPolicy, kind: Kind) -> None:
    for run, saga_run in runs(name, policy, kind):
        assert run.wrote_at is not None
        if is_stopped(name, policy, kind, run.write.victim, run.wrote_at):
            assert saga_run.phase == "failed", run.write
            server = run.region.server(S)
            assert server.state == STOPPED_AS[name]
            assert server.fault is not None
            assert "another client has changed the allocations" in server.fault.message
            run.write = run.write._replace(moment=-1)
            run.check_settled()
            assert begin(run.region, name, policy) is None, "it was reported, and is known"
            saga_run = run.carried_out()
        assert saga_run.phase == "done", (run.write, saga_run.reason)
        run.check_settled()
        run.check_nothing_is_left()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", PLACED)
def test_a_write_before_each_step_of_what_is_undone(name: str, policy: ConflictPolicy, kind: Kind) -> None:
    last = [step.name for step in saga(name).steps if step.on_failure in ("undo", "next_alternate")][-1]
    for run, saga_run in runs(name, policy, kind, fails=(last,)):
        assert saga_run.phase == "failed", run.write
        server = run.region.server(S)
        if name in MOVES:
            assert server.place == run.source
            assert server.migration is None
            assert server.state == ("error" if name == "evacuate" else run.state_before)
        else:
            assert (server.place, run.region.held(S)) == (None, {})
        run.check_settled()
        run.check_nothing_is_left()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", PLACED)
def test_a_write_before_each_step_where_the_first_host_fails(
    name: str, policy: ConflictPolicy, kind: Kind
) -> None:
    for run, saga_run in runs(name, policy, kind, once=("prepare", "build")):
        assert (saga_run.phase, saga_run.attempt) == ("done", 2), run.write
        run.check_settled()
        run.check_nothing_is_left()


def victims(name: str) -> tuple[Victim, ...]:
    return ("server", "migration") if name in (*MOVES, "confirm", "revert") else ("server",)


def runs(
    name: str,
    policy: ConflictPolicy,
    kind: Kind,
    fails: tuple[str, ...] = (),
    once: tuple[str, ...] = (),
) -> Iterator[tuple[Run, SagaRun]]:
    """The operation with the write before its first step, before its second, and so on."""
    for victim in victims(name):
        moment, moments = 1, 1
        while moment <= moments:
            run = Run(name, policy, Write(kind, victim, moment), Faults(fails, once))
            assert begin(run.region, name, policy) is None
            saga_run = run.carried_out()
            moments = run.moments
            moment += 1
            if run.wrote_at is not None:
                yield run, saga_run


def test_a_resized_server_is_deleted_by_the_same_rules() -> None:
    """Its migration is judged with it."""
    for kind in KINDS:
        region = prepared("confirm")
        assert write(region, kind, "migration")
        refused = region.begin("delete", S)
        assert isinstance(refused, ServerChangedByOthers) == (kind in ("more", "less")), kind
        if refused is not None:
            assert "of its migration" in refused.found  # type: ignore[attr-defined]
            assert region.server(S).state == "resized"
            assert region.begin("delete", S) is None
        region.carry_out()
        assert not region.view.consumers


def test_a_second_write_is_refused_again_once() -> None:
    region = prepared("migrate")
    for _ in range(2):
        assert write(region, "more", "server")
        assert isinstance(region.begin("migrate", S), ServerChangedByOthers)
    assert region.begin("migrate", S) is None
    assert bandwidth(region) == 200


def test_what_was_added_is_asked_for_with_the_traits_of_its_device() -> None:
    region = prepared("migrate")
    place = region.server(S).place
    assert place is not None
    number = int(place.name.removeprefix("host-"))
    region.do(c.CreateTrait("CUSTOM_PHYSNET_A"))
    other = next(n for n in range(1, 6) if n != number)
    for card in (nic_id(number), nic_id(other)):
        region.do(c.SetTraits(ProviderId(card), None, frozenset(("CUSTOM_PHYSNET_A",))))
    assert write(region, "more", "server")
    assert region.begin("migrate", S, "merge") is None
    assert region.hosts_of(S) == [f"host-{other}"], "no other has such a card"


def test_without_room_for_what_was_added_the_refusal_names_it() -> None:
    region = prepared("migrate")
    place = region.server(S).place
    assert place is not None
    for number in range(1, 6):
        if f"host-{number}" != place.name:
            region.claim(f"ports-{number}", (nic_id(number), ((BANDWIDTH, 950),)), type="PORT")
    assert write(region, "more", "server")
    refused = region.begin("migrate", S, "merge")
    assert refused is not None
    assert BANDWIDTH in repr(refused)
    assert region.begin("migrate", S, "retry") is None
