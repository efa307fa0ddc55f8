"""What /berth/v1 is sent about servers and by those who look after them."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from berth.doctor.findings import GRACE_S
from berth.model.placement import AMOUNT_MAX
from berth.sagas.needs import RESOURCES_MAX

_TRAITS_MAX: Final = 50
_FINDINGS_MAX: Final = 1_000
_GRACE_MAX_S: Final = 86_400

_Class = Annotated[str, Meta(min_length=1, max_length=255, description="The name of a resource class.")]
_Trait = Annotated[str, Meta(min_length=1, max_length=255, description="The name of a trait.")]
_Traits = Annotated[tuple[_Trait, ...], Meta(max_length=_TRAITS_MAX)]
_Amount = Annotated[int, Meta(ge=1, le=AMOUNT_MAX)]
_FindingId = Annotated[str, Meta(min_length=3, max_length=200, examples=["orphan_consumer:UUID"])]


class _Body(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    pass


class PutNeed(_Body, frozen=True, kw_only=True):
    """Resources that one provider of the server's host is to give, and what that must have and must not."""

    resources: Annotated[dict[_Class, _Amount], Meta(min_length=1, max_length=RESOURCES_MAX)]
    required: _Traits = ()
    forbidden: _Traits = ()


class Repair(_Body, frozen=True, kw_only=True):
    """``findings``: their ids, or all that can be repaired. ``grace_s``: how old what a consumer of which no
    record knows has written must be."""

    findings: Annotated[tuple[_FindingId, ...], Meta(min_length=1, max_length=_FINDINGS_MAX)] | Literal["all"]
    dry_run: bool = True
    grace_s: Annotated[int, Meta(ge=0, le=_GRACE_MAX_S)] = GRACE_S
