"""Rules that the wire cannot reach, because it refuses earlier: other callers can."""

from berth.ledger import decide
from berth.model.commands import (
    Claim,
    Command,
    CreateProvider,
    ReplaceAllocations,
    SetAggregates,
    SetInventories,
)
from berth.model.ids import AggregateId, ConsumerId, ProviderId
from berth.model.placement import Inventory
from berth.model.rejections import ConsumerClaimsTwice, Rejection
from berth.view import View

P, C, A = ProviderId("p"), ConsumerId("c"), AggregateId("a")


def carry_out(view: View, command: Command) -> Rejection | None:
    verdict = decide(view, command, 0)
    if isinstance(verdict, Rejection):
        return verdict
    for event in verdict:
        view.apply(event)
    return None


def test_an_aggregate_named_twice_is_one_and_can_be_left() -> None:
    view = View()
    carry_out(view, CreateProvider(P, "host"))
    assert carry_out(view, SetAggregates(P, None, (A, A))) is None
    assert view.providers[P].aggregates == (A,)
    assert carry_out(view, SetAggregates(P, None, ())) is None
    assert not view.rows_in_aggregate(A)


def test_two_claims_of_one_consumer_in_a_command_are_refused() -> None:
    view = View()
    carry_out(view, CreateProvider(P, "host"))
    carry_out(view, SetInventories(P, None, {"VCPU": Inventory(8)}))
    claim = Claim(C, ((P, (("VCPU", 1),)),), "project", "user")
    before = view.state()
    assert carry_out(view, ReplaceAllocations((claim, claim))) == ConsumerClaimsTwice(C)
    assert view.state() == before
