"""Small fleets, made the way every fleet is: by commands that the ledger accepts."""

from collections.abc import Mapping

from berth.ledger import decide
from berth.model.commands import (
    Claim,
    Command,
    CreateGroup,
    CreateProvider,
    CreateResourceClass,
    CreateTrait,
    LabelAggregate,
    ReplaceAllocations,
    SetAggregates,
    SetHostStatus,
    SetInventories,
    SetTraits,
)
from berth.model.groups import HOST, Group, Policy
from berth.model.ids import AggregateId, ConsumerId, GroupId, ProviderId
from berth.model.placement import HostStatus, Inventory, Label
from berth.model.rejections import Rejection
from berth.model.scheduling import CandidatesRequest, RequestGroup, ScheduleRequest
from berth.view import View


class Fleet:
    """A view, and short ways to say what is in it. Providers and aggregates are called by their names."""

    def __init__(self) -> None:
        self.view = View()
        self._consumers = 0

    def do(self, command: Command) -> Rejection | None:
        verdict = decide(self.view, command, 0)
        if isinstance(verdict, Rejection):
            return verdict
        for event in verdict:
            self.view.apply(event)
        return None

    def must(self, command: Command) -> None:
        refused = self.do(command)
        assert refused is None, refused

    def provider(
        self,
        name: str,
        inventories: Mapping[str, Inventory | int] | None = None,
        *,
        parent: str | None = None,
        traits: tuple[str, ...] = (),
        aggregates: tuple[str, ...] = (),
    ) -> ProviderId:
        id = ProviderId(f"id-of-{name}")
        self.must(CreateProvider(id, name, self.id_of(parent) if parent else None))
        stock = {
            name: Inventory(amount) if isinstance(amount, int) else amount
            for name, amount in (inventories or {}).items()
        }
        for resource_class in stock:
            if resource_class.startswith("CUSTOM_"):
                self.must(CreateResourceClass(resource_class, exist_ok=True))
        if stock:
            self.must(SetInventories(id, None, stock))
        for trait in traits:
            if trait.startswith("CUSTOM_"):
                self.must(CreateTrait(trait))
        if traits:
            self.must(SetTraits(id, None, frozenset(traits)))
        if aggregates:
            self.must(SetAggregates(id, None, tuple(AggregateId(name) for name in aggregates)))
        return id

    def aggregate(self, name: str, kind: str | None = None, **metadata: str) -> None:
        label = Label(kind, name, tuple(sorted(metadata.items())))
        self.must(LabelAggregate(AggregateId(name), label))

    def status(self, name: str, status: HostStatus) -> None:
        self.must(SetHostStatus(self.id_of(name), status))

    def group(
        self,
        name: str,
        policy: Policy,
        domain: str = HOST,
        max_per_domain: int | None = None,
        max_skew: int | None = None,
    ) -> GroupId:
        id = GroupId(f"id-of-{name}")
        self.must(CreateGroup(id, Group(name, policy, domain, max_per_domain, max_skew, "p", "u", 0)))
        return id

    def take(self, name: str, amounts: Mapping[str, int], group: GroupId | None = None) -> ConsumerId:
        """A new consumer with these amounts of one provider."""
        self._consumers += 1
        consumer = ConsumerId(f"server-{self._consumers}")
        wanted = ((self.id_of(name), tuple(amounts.items())),)
        self.must(ReplaceAllocations((Claim(consumer, wanted, "p", "u", None, None, group),)))
        return consumer

    @staticmethod
    def id_of(name: str) -> ProviderId:
        return ProviderId(f"id-of-{name}")


def asking(*groups: RequestGroup, isolate: bool = False) -> CandidatesRequest:
    return CandidatesRequest(groups=groups, isolate=isolate)


def resources(suffix: str = "", **amounts: int) -> RequestGroup:
    return RequestGroup(suffix=suffix, resources=tuple(amounts.items()))


def request(ask: CandidatesRequest, count: int = 1, **fields: object) -> ScheduleRequest:
    """A request of this many new members, all of which are needed."""
    members = tuple(ConsumerId(f"new-{number}") for number in range(1, count + 1))
    named: dict[str, object] = {"at_least": count, **fields}
    return ScheduleRequest(ask=ask, members=members, project="p", user="u", **named)  # type: ignore[arg-type]
