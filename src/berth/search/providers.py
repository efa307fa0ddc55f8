"""Which providers meet a query, and the masks that answer it: one question about every provider at once.

A mask has one place per row of the view. Masks returned here are fresh and may be changed by the caller.
"""

import numpy as np

from berth.model.ids import AggregateId, ClassId, Row
from berth.model.rejections import Rejection, ResourceClassNotFound, TraitsNotFound
from berth.model.scheduling import AnyOf, CandidatesRequest, Constraints, ProviderQuery
from berth.view import Mask, ProviderRecord, View
from berth.view.sets import RowSet


def find_providers(view: View, query: ProviderQuery) -> list[ProviderRecord] | Rejection:
    """The providers that meet all of the query, by row.

    A name that does not exist is refused only while there is something left to find: the parts of the query
    are looked at in upstream's order, and one that nothing meets ends it.
    """
    if query.in_tree is not None and query.in_tree not in view.providers:
        return []
    unknown = find_unknown_traits(view, Constraints(required=query.required))
    if unknown is not None:
        return unknown
    if _is_empty(with_all_traits(view, query.required)):
        return []
    unknown = find_unknown_traits(view, Constraints(forbidden=query.forbidden))
    if unknown is not None:
        return unknown
    if _is_empty(in_all_aggregates(view, query.member_of)):
        return []
    mask = _named(view, query)
    for name, amount in query.resources:
        class_id = view.classes.id_of(name)
        if class_id is None:
            return ResourceClassNotFound(name)
        mask &= with_room(view, class_id, amount)
    narrow(view, mask, query)
    return [view.record(Row(row)) for row in np.flatnonzero(mask).tolist()]


def _is_empty(mask: Mask | None) -> bool:
    return mask is not None and not mask.any()


def _named(view: View, query: ProviderQuery) -> Mask:
    """All rows in use, or the one row of the provider named by id or name."""
    mask = np.zeros(view.row_end, np.bool_)
    if query.id is None and query.name is None:
        mask[[record.row for record in view.providers.values()]] = True
        return mask
    record = view.providers.get(query.id) if query.id is not None else view.names.get(query.name or "")
    if record is not None and query.name in (None, record.name):
        mask[record.row] = True
    return mask


# -- masks --------------------------------------------------------------------------------------


def with_room(view: View, class_id: ClassId, amount: int) -> Mask:
    """Rows where one more allocation of this amount would be accepted."""
    column = view.classes.column(class_id)
    view.steps.take(10 + view.row_end // 8000 + len(column.rows()) // 1000)
    fitting = column.fitting(amount)
    view.steps.take(len(fitting) // 300)
    mask = np.zeros(view.row_end, np.bool_)
    mask[fitting] = True
    return mask


def with_any_room(view: View, class_id: ClassId) -> Mask:
    """Rows where one more allocation of some amount would be accepted."""
    rows, free = view.classes.column(class_id).free_for_one()
    view.steps.take(10 + view.row_end // 8000 + len(rows) // 150)
    mask = np.zeros(view.row_end, np.bool_)
    mask[rows[free > 0]] = True
    return mask


def any_of(view: View, sets: list[RowSet]) -> Mask:
    """Rows that are in one of the sets."""
    end = view.row_end
    view.steps.take(5 + len(sets) * (1 + end // 4000))
    mask = np.zeros(end, np.bool_)
    sparse = []
    for rows in sets:
        if rows.is_sparse(end):
            sparse.append(rows.rows())
        else:
            mask |= rows.mask(end)
    if sparse:
        # Of many small sets, such as the racks of a fleet, all at once.
        mask[np.concatenate(sparse)] = True
    return mask


def with_all_traits(view: View, required: tuple[AnyOf, ...]) -> Mask | None:
    """Rows that have at least one trait of each alternative; None when nothing is required."""
    return _meet_all(view, [[view.rows_with_trait(name) for name in names] for names in required])


def with_any_trait(view: View, names: frozenset[str]) -> Mask | None:
    return any_of(view, [view.rows_with_trait(name) for name in names]) if names else None


def in_all_aggregates(view: View, member_of: tuple[tuple[AggregateId, ...], ...]) -> Mask | None:
    """Rows that are in at least one aggregate of each alternative; None when nothing is asked."""
    return _meet_all(view, [[view.rows_in_aggregate(id) for id in ids] for ids in member_of])


def _meet_all(view: View, alternatives: list[list[RowSet]]) -> Mask | None:
    mask = None
    for sets in alternatives:
        meeting = any_of(view, sets)
        mask = meeting if mask is None else mask & meeting
    return mask


def in_any_aggregate(view: View, aggregates: frozenset[AggregateId]) -> Mask | None:
    return any_of(view, [view.rows_in_aggregate(id) for id in aggregates]) if aggregates else None


def roots_served(view: View, aggregates: tuple[AggregateId, ...]) -> Mask:
    """The roots that a provider of these aggregates serves if it shares: of every tree that has a member in
    one of them."""
    mask = np.zeros(view.row_end, np.bool_)
    mask[view.root_rows[any_of(view, [view.rows_in_aggregate(id) for id in aggregates])]] = True
    return mask


def narrow(view: View, mask: Mask, constraints: Constraints) -> None:
    """Leave in the mask only rows that meet the constraints by themselves."""
    have = with_all_traits(view, constraints.required)
    if have is not None:
        mask &= have
    have_not = with_any_trait(view, constraints.forbidden)
    if have_not is not None:
        mask &= ~have_not
    inside = in_all_aggregates(view, constraints.member_of)
    if inside is not None:
        mask &= inside
    outside = in_any_aggregate(view, constraints.not_member_of)
    if outside is not None:
        mask &= ~outside
    if constraints.in_tree is not None:
        narrow_to_tree(view, mask, constraints)


def narrow_to_tree(view: View, mask: Mask, constraints: Constraints) -> None:
    """Leave only rows of the tree that the named provider stands in: none, if there is no such provider."""
    if constraints.in_tree is None:
        return
    record = view.providers.get(constraints.in_tree)
    if record is None:
        mask[:] = False
    else:
        mask &= view.root_rows == record.root.row


def narrow_to_roots(view: View, mask: Mask, request: CandidatesRequest) -> None:
    """Leave only roots that are themselves as the request asks."""
    narrow(
        view,
        mask,
        Constraints(
            required=tuple((name,) for name in sorted(request.root_required)),
            forbidden=request.root_forbidden,
            member_of=request.root_member_of,
            not_member_of=request.root_not_member_of,
        ),
    )


def find_unknown_traits(view: View, constraints: Constraints) -> TraitsNotFound | None:
    names = {name for alternatives in constraints.required for name in alternatives}
    unknown = sorted(name for name in names | constraints.forbidden if not view.has_trait(name))
    return TraitsNotFound(tuple(unknown)) if unknown else None


def find_unknown_host_traits(view: View, request: CandidatesRequest) -> TraitsNotFound | None:
    """The traits that a request names outside of its groups and that do not exist."""
    named = (*request.root_required, *request.split_required)
    required = (*request.guest_required, *((name,) for name in named))
    return find_unknown_traits(view, Constraints(required=required, forbidden=request.root_forbidden))
