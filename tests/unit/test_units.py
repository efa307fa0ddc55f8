"""Which units a server gets, and that no change puts a unit into two assignments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.cell.units import choose_units
from berth.ledger import decide, remove_record, replace_record
from berth.model.commands import Enact
from berth.model.events import RecordChanged
from berth.model.rejections import UnitTaken
from berth.model.saga_runs import Assignment, OwnedProvider, assignment_id
from berth.view import View

pytestmark = pytest.mark.fast

# Four cores of two threads.
CORES = (("0", "4"), ("1", "5"), ("2", "6"), ("3", "7"))
SMT = OwnedProvider("p", units={"PCPU": ("0", "1", "2", "3", "4", "5", "6", "7")}, siblings=CORES)
FLAT = OwnedProvider("p", units={"PCPU": ("0", "1", "2", "3"), "VGPU": ("c", "a", "b")})


@pytest.mark.parametrize(
    ("provider", "policy", "amount", "taken", "expected"),
    [
        # As many whole cores as the number fills, the rest from a core that is in use.
        (SMT, "prefer", 2, "", "0 4"),
        (SMT, "prefer", 1, "", "0"),
        (SMT, "prefer", 1, "1", "5"),
        (SMT, "prefer", 3, "0", "1 4 5"),
        (SMT, "prefer", 2, "0", "1 5"),
        (SMT, "prefer", 2, "0 1 2 3", "4 5"),
        (SMT, "prefer", 8, "", "0 1 2 3 4 5 6 7"),
        (SMT, "prefer", 8, "3", None),
        (SMT, "require", 2, "0", "1 5"),
        (SMT, "require", 3, "0", "1 2 5"),
        (SMT, "require", 2, "0 1 2 3", None),
        (SMT, "isolate", 1, "", None),
        (FLAT, "prefer", 2, "0", "1 2"),
        (FLAT, "require", 1, "", None),
        (FLAT, "isolate", 2, "0", "1 2"),
    ],
)
def test_cpus_are_taken_by_cores_as_the_policy_says(
    provider: OwnedProvider, policy: str, amount: int, taken: str, expected: str | None
) -> None:
    found = choose_units(provider, "PCPU", amount, set(taken.split()), (), policy)
    assert found == (None if expected is None else tuple(expected.split()))


def test_devices_are_taken_in_the_order_of_the_host() -> None:
    assert choose_units(FLAT, "VGPU", 2, {"c"}, (), "require") == ("a", "b")
    assert choose_units(FLAT, "VGPU", 3, {"c"}, (), "prefer") is None


def test_a_server_keeps_what_it_has() -> None:
    assert choose_units(FLAT, "VGPU", 2, (), ("b",), "prefer") == ("c", "b")
    assert choose_units(SMT, "PCPU", 3, (), ("2", "6"), "prefer") == ("0", "2", "6")
    assert choose_units(SMT, "PCPU", 1, (), ("2", "6"), "prefer") == ("2",)


@given(
    amount=st.integers(1, 8),
    taken=st.sets(st.sampled_from("01234567")),
    had=st.sets(st.sampled_from("01234567")),
    policy=st.sampled_from(("prefer", "require", "isolate")),
)
def test_what_is_chosen_is_free_and_is_found_whenever_it_can_be(
    amount: int, taken: set[str], had: set[str], policy: str
) -> None:
    found = choose_units(SMT, "PCPU", amount, taken, had - taken, policy)
    free = set("01234567") - taken
    if found is not None:
        assert len(found) == len(set(found)) == amount
        assert set(found) <= free
        assert len(set(found) & had) == min(amount, len(had - taken))
    elif policy == "prefer":
        assert amount > len(free)


# -- the rule ---------------------------------------------------------------------------------------


def assignment(server: str, host: str, *units: str, holder: str | None = None) -> Assignment:
    by = holder or server
    return Assignment(
        id=assignment_id(by, host),
        server=server,
        host=host,
        holder=by,
        run="r",
        units={"p": {"PCPU": units}},
        counts={},
    )


def enacted(view: View, *changes: RecordChanged) -> UnitTaken | None:
    verdict = decide(view, Enact(changes), 0)
    if isinstance(verdict, UnitTaken):
        return verdict
    assert isinstance(verdict, list)
    for event in verdict:
        view.apply(event)
    return None


def test_a_unit_is_in_one_assignment_whoever_writes() -> None:
    view = View()
    first = assignment("a", "h", "1", "2")
    assert enacted(view, RecordChanged(None, first)) is None
    refused = enacted(view, RecordChanged(None, assignment("b", "h", "2", "3")))
    assert refused == UnitTaken("h", "2", "b", "a")
    # The same name on another host is another unit.
    assert enacted(view, RecordChanged(None, assignment("b", "g", "2", "3"))) is None
    # Not even for the other half of the same server, nor twice in one.
    assert enacted(view, RecordChanged(None, assignment("a", "h", "1", holder="m"))) is not None
    assert enacted(view, RecordChanged(None, assignment("c", "h", "7", "7"))) is not None
    both = (RecordChanged(None, assignment("c", "h", "8")), RecordChanged(None, assignment("d", "h", "8")))
    assert enacted(view, *both) == UnitTaken("h", "8", "d", "c")


def test_what_a_change_frees_it_may_give_away() -> None:
    view = View()
    first, second = assignment("a", "h", "1"), assignment("b", "h", "2")
    assert enacted(view, RecordChanged(None, first), RecordChanged(None, second)) is None
    swapped = (
        replace_record(view, assignment("a", "h", "2")),
        replace_record(view, assignment("b", "h", "1")),
    )
    assert enacted(view, *swapped) is None
    handed = assignment("a", "h", "2", holder="m")
    assert enacted(view, RecordChanged(None, handed), remove_record(view, assignment("a", "h", "2"))) is None
    assert [one.holder for one in view.records.find(Assignment, "server", "a")] == ["m"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from("gh"), st.sets(st.sampled_from("12345"), max_size=3)
        ),
        max_size=25,
    )
)
def test_random_changes_never_put_a_unit_into_two_assignments(
    wanted: list[tuple[str, str, set[str]]],
) -> None:
    """Whoever wants units that are free gets them, and nobody else; an empty set gives them back."""
    view = View()
    model: dict[tuple[str, str], set[str]] = {}
    for server, host, units in wanted:
        others = {unit for (one, at), has in model.items() if at == host and one != server for unit in has}
        after = assignment(server, host, *sorted(units))
        if units:
            refused = enacted(view, replace_record(view, after))
        elif (server, host) in model:
            refused = enacted(view, remove_record(view, after))
        else:
            continue
        assert (refused is None) == (not units & others)
        if refused is None:
            model[server, host] = units
            if not units:
                del model[server, host]
        found = {(one.server, one.host): set(one.unit_names()) for one in view.records.all(Assignment)}
        assert found == model
