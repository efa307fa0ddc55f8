"""What /berth/v1 is sent: every body as a struct, with a range for every number and a limit for every list.

A field that the struct does not have is refused by name. The OpenAPI description is read off the same
structs.
"""

from collections.abc import Iterable
from functools import cache
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from berth.api.kernel.codes import BAD_BODY
from berth.api.kernel.problem import Problem
from berth.api.native.parameters import UUID
from berth.model.groups import HOST, MEMBERS_MAX, Policy
from berth.model.ids import ConsumerId

_PER_DOMAIN_MAX: Final = MEMBERS_MAX
_METADATA_MAX: Final = 100
_FAILURES_MAX: Final = 1_000_000

Uuid = Annotated[str, Meta(pattern=UUID, description="A uuid, with its dashes.")]
Name = Annotated[str, Meta(min_length=1, max_length=255, description="What people call it.")]
Kind = Annotated[
    str,
    Meta(
        pattern="^[a-z][a-z0-9_-]{0,63}\\Z",
        description="What a domain is: `host`, or the kind of an aggregate, such as `rack` or `zone`.",
        examples=["rack"],
    ),
]
PerDomain = Annotated[int, Meta(ge=1, le=_PER_DOMAIN_MAX, description="How many members may share a domain.")]
Skew = Annotated[
    int,
    Meta(
        ge=1,
        le=_PER_DOMAIN_MAX,
        description="How many more members one domain may have than the emptiest of its kind.",
    ),
]
Members = Annotated[tuple[Uuid, ...], Meta(max_length=MEMBERS_MAX, description="Consumers, by their uuids.")]
_Text = Annotated[str, Meta(min_length=1, max_length=255)]


class _Body(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    pass


# -- groups -------------------------------------------------------------------------------------


class NewGroup(_Body, frozen=True, kw_only=True):
    """``max_per_domain`` is 1 for a policy that keeps members apart, unless it or ``max_skew`` is given."""

    name: Name
    policy: Policy
    uuid: Uuid | None = None
    domain: Kind = HOST
    max_per_domain: PerDomain | UnsetType | None = UNSET
    max_skew: Skew | None = None
    members: Members = ()


class CreateGroup(_Body, frozen=True, kw_only=True):
    group: NewGroup


class ChangedGroup(_Body, frozen=True, kw_only=True):
    """What is left out stays as it is."""

    name: Name | UnsetType = UNSET
    policy: Policy | UnsetType = UNSET
    max_per_domain: PerDomain | UnsetType | None = UNSET
    max_skew: Skew | UnsetType | None = UNSET


class ChangeGroup(_Body, frozen=True, kw_only=True):
    group: ChangedGroup


class ChangeMembers(_Body, frozen=True, kw_only=True):
    """Consumers to declare members, and members to let go."""

    add: Members = ()
    remove: Members = ()


# -- aggregates and hosts -----------------------------------------------------------------------


class NewLabel(_Body, frozen=True, kw_only=True):
    kind: Kind | None = None
    name: Name | None = None
    metadata: Annotated[
        dict[_Text, _Text], Meta(max_length=_METADATA_MAX, description="What flavors may ask for.")
    ] = {}


class LabelAggregate(_Body, frozen=True, kw_only=True):
    aggregate: NewLabel


class NewStatus(_Body, frozen=True, kw_only=True):
    """How a host is doing. What is left out is as for a healthy host."""

    disabled: Annotated[bool, Meta(description="An operator does not want anything new there.")] = False
    down: Annotated[bool, Meta(description="It is not heard of.")] = False
    build_failures: Annotated[
        int, Meta(ge=0, le=_FAILURES_MAX, description="Builds that failed there in a row.")
    ] = 0
    reason: _Text | None = None


class SetStatus(_Body, frozen=True, kw_only=True):
    host: NewStatus


def consumers_of(ids: Iterable[str]) -> tuple[ConsumerId, ...]:
    """Consumers that a body names, spelled as a path of the Placement API would have them."""
    return tuple(ConsumerId(id.lower()) for id in ids)


B = TypeVar("B", bound=msgspec.Struct)


@cache
def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def decode(body: bytes, kind: type[B]) -> B:
    """The body of a request; Problem if it is not what the struct says."""
    try:
        decoded: B = _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        raise Problem(400, f"The body is not what is expected here: {error}.", BAD_BODY) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, f"The body is not JSON: {error}.", BAD_BODY) from None
    return decoded
