"""Hosts that nobody has disabled: neither an operator here, nor Nova by the trait it uses for that."""

from typing import Final

from berth.model.scheduling import ScheduleRequest
from berth.view import ProviderRecord, View
from berth.view.rowset import Mask

FOLLOWS_CLAIMS = False
DISABLED_TRAIT: Final = "COMPUTE_STATUS_DISABLED"


def asked(view: View, request: ScheduleRequest) -> str | None:
    return "a host that is not disabled"


def passing(view: View, request: ScheduleRequest) -> Mask:
    disabled = view.disabled.mask(view.row_end)
    marked = view.rows_with_trait(DISABLED_TRAIT)
    return ~(disabled | marked.mask(view.row_end)) if marked else ~disabled


def found(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    status = view.hosts.get(host.id)
    if status is not None and status.disabled:
        return f"disabled: {status.reason or 'no reason was given'}"
    return f"it has the trait {DISABLED_TRAIT}" if DISABLED_TRAIT in host.traits else "enabled"
