"""/berth/v1/aggregates: the kind, the name and the metadata of aggregates, which providers know by uuid."""

import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from berth.api.kernel.codes import BAD_BODY, BAD_PARAMETER
from berth.api.kernel.http import Response
from berth.api.kernel.paging import behind, render_keys, take_first
from berth.api.kernel.problem import Problem
from berth.api.native.calls import NativeCall, NativeRoute, answer_from, respond
from berth.api.native.fields import LIMIT_DEFAULT, GivenName, KeyMarker, Kind, Limit, NativeBody, Next, Text
from berth.model.commands import LabelAggregate
from berth.model.groups import HOST
from berth.model.ids import AggregateId
from berth.model.placement import Label
from berth.scheduler.spec_table import wrong_metadata
from berth.view import View

# -- answers ------------------------------------------------------------------------------------


class LabelledAggregate(msgspec.Struct):
    """``providers``: how many are in it."""

    uuid: str
    kind: str | None
    name: str | None
    metadata: dict[str, str]
    providers: int


class OneAggregate(msgspec.Struct):
    aggregate: LabelledAggregate


class AggregatesPage(msgspec.Struct):
    """A page of aggregates with a kind, a name or metadata, in the order of their uuids."""

    aggregates: list[LabelledAggregate]
    next: Next = None


# -- bodies and queries -------------------------------------------------------------------------

_METADATA_MAX: Final = 100


class NewLabel(NativeBody, frozen=True, kw_only=True):
    kind: Kind | None = None
    name: GivenName | None = None
    metadata: Annotated[
        dict[Text, Text], Meta(max_length=_METADATA_MAX, description="What flavors may ask for.")
    ] = msgspec.field(default_factory=dict)


class LabelBody(NativeBody, frozen=True, kw_only=True):
    aggregate: NewLabel


OfKind = Annotated[str, Meta(min_length=1, max_length=64, description="Only aggregates of this kind.")]


class AggregatesQuery(msgspec.Struct, frozen=True, kw_only=True):
    kind: OfKind | None = None
    limit: Limit = LIMIT_DEFAULT
    marker: KeyMarker | None = None


# -- handlers -----------------------------------------------------------------------------------

_SPELLING: Final = re.compile("[0-9a-fA-F-]{32,36}")


def list_aggregates(view: View, call: NativeCall) -> AggregatesPage:
    query: AggregatesQuery = call.query
    labels = view.groups.labels
    ids = labels if query.kind is None else view.groups.of_kind(query.kind)
    found, more = take_first(behind(ids, query.marker), query.limit)
    return AggregatesPage(*render_keys(call.request, query, found, more, lambda id: _describe(view, id)))


async def label_aggregate(call: NativeCall) -> Response:
    asked: NewLabel = call.body.aggregate
    id = AggregateId(call.params[0])
    if not _SPELLING.fullmatch(id):
        raise Problem(400, "An aggregate is named by its uuid, as providers spell it.", BAD_PARAMETER)
    if asked.kind == HOST:
        raise Problem(400, "Every host is a domain of the kind host: choose another kind.", BAD_BODY)
    call.accept(wrong_metadata(asked.metadata))
    label = Label(asked.kind, asked.name, tuple(sorted(asked.metadata.items())))
    return await call.submit(
        LabelAggregate(id, label),
        lambda view: respond(OneAggregate(_describe(view, id))),
    )


async def unlabel_aggregate(call: NativeCall) -> Response:
    command = LabelAggregate(AggregateId(call.params[0]), None)
    return await call.submit(command, lambda _: Response(204))


def _describe(view: View, id: AggregateId) -> LabelledAggregate:
    label = view.groups.labels[id]
    return LabelledAggregate(
        id, label.kind, label.name, dict(label.metadata), len(view.rows_in_aggregate(id))
    )


ROUTES: Final = (
    NativeRoute(
        "GET",
        "/aggregates",
        answer_from(list_aggregates),
        policy="berth:aggregates:list",
        name="list_aggregates",
        query=AggregatesQuery,
        answer=AggregatesPage,
        summary="List aggregates with a kind, a name or metadata",
        description="Aggregates with a kind, a name or metadata, in the order of their uuids.",
    ),
    NativeRoute(
        "PUT",
        "/aggregates/{aggregate}",
        label_aggregate,
        policy="berth:aggregates:update",
        name="label_aggregate",
        body=LabelBody,
        example={"aggregate": {"kind": "rack", "name": "r1"}},
        answer=OneAggregate,
        summary="Set the kind, name and metadata of an aggregate",
        description="A kind, such as `rack`, `zone` or `cell`, makes it a domain of groups and of the "
        "scheduler.",
    ),
    NativeRoute(
        "DELETE",
        "/aggregates/{aggregate}",
        unlabel_aggregate,
        policy="berth:aggregates:update",
        name="unlabel_aggregate",
        status=204,
        summary="Remove the kind, name and metadata of an aggregate",
        description="Providers stay in it.",
    ),
)
