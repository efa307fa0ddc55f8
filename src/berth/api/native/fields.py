"""The types of fields that several resources of /berth/v1 have. Every number has a range, every list a limit;
the OpenAPI description follows from these types. The command line checks bodies with them: nothing of the
server is imported here."""

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from berth.model.ids import ConsumerId
from berth.model.rejections import PoolShortage
from berth.model.scheduling import Check, SmallestChange

# -- what is answered ---------------------------------------------------------------------------

Uuid = Annotated[str, Meta(description="A uuid.", examples=["5a8f6d1e-4c1b-4c57-9d2b-0f1c2d3e4f50"])]
Time = Annotated[str, Meta(description="ISO 8601, UTC.", examples=["2026-01-31T09:30:00Z"])]
Next = Annotated[
    str | None, Meta(description="Where the next page is, relative to the server; null on the last page.")
]
Amounts = Annotated[dict[str, int], Meta(description="Amounts by the name of the resource class.")]
JournalIndex = Annotated[int, Meta(ge=0, description="A position in the journal.")]
UNKNOWN_TYPE: Final = "unknown"
"""The type of a consumer that was written before consumers had types."""


class HostExplanation(msgspec.Struct):
    """Each constraint at one host. ``refused``: what the ledger says of a claim there."""

    host: str
    host_uuid: str | None
    fits: bool
    checks: tuple[Check, ...]
    refused: str | None


class ExplainedStep(msgspec.Struct):
    """One constraint: how many of the remaining hosts it removed and left. ``hosts``: the first 20 that it
    removed. ``pools``: those that the removed hosts could use, and that have too little free. ``nearest``: a
    sentence about one of the removed hosts."""

    constraint: str
    asked: str
    removed: int
    left: int
    pools: tuple[PoolShortage, ...]
    nearest: str
    hosts: tuple[str, ...]


class ExplanationDetail(msgspec.Struct):
    """``steps`` are the constraints in order, with the hosts that each removed; ``change`` is the smallest
    change that would make it fit. Callers that are not told of hosts get numbers and changes of the request,
    and no names."""

    index: JournalIndex
    needed: int
    fitting: int
    hosts_total: int
    steps: tuple[ExplainedStep, ...]
    text: str
    hosts: list[HostExplanation]
    change: SmallestChange | None
    refused: str | None


# -- what is sent -------------------------------------------------------------------------------

UUID: Final = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\\Z"
GivenUuid = Annotated[str, Meta(pattern=UUID, description="A uuid, with its dashes.")]
GivenName = Annotated[str, Meta(min_length=1, max_length=255, description="What people call it.")]
Kind = Annotated[
    str,
    Meta(
        pattern="^[a-z][a-z0-9_-]{0,63}\\Z",
        description="What a domain is: `host`, or the kind of an aggregate, such as `rack` or `zone`.",
        examples=["rack"],
    ),
]
Text = Annotated[str, Meta(min_length=1, max_length=255)]


class NativeBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The body of a request. A field that it does not have is refused by name."""


# -- what is asked for in a query ---------------------------------------------------------------

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1000
Limit = Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="How many entries a page holds at most.")]
KeyMarker = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        description="The last key of the previous page; this page begins after it.",
    ),
]
ResourceClass = Annotated[
    str, Meta(min_length=1, max_length=255, description="Only this resource class, by its name.")
]


class NoQuery(msgspec.Struct, frozen=True, kw_only=True):
    """No parameters at all."""


def read_consumers(ids: Iterable[str]) -> tuple[ConsumerId, ...]:
    """Consumers that a body names, in the spelling of the Placement API's paths."""
    return tuple(ConsumerId(id.lower()) for id in ids)
