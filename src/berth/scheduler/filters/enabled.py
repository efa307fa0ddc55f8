"""Hosts that are not disabled: neither by an operator here, nor by Nova with the trait it uses for that."""

from berth.model.placement import STATUS_DISABLED
from berth.model.scheduling import ScheduleRequest
from berth.view import Mask, ProviderRecord, View

FOLLOWS_CLAIMS = False


def describe_request(view: View, request: ScheduleRequest) -> str | None:
    return "a host that is not disabled"


def passing_hosts(view: View, request: ScheduleRequest) -> Mask:
    disabled = view.disabled.mask(view.row_end)
    marked = view.rows_with_trait(STATUS_DISABLED)
    return ~(disabled | marked.mask(view.row_end)) if marked else ~disabled


def describe_host(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    status = view.hosts.get(host.id)
    if status is not None and status.disabled:
        return f"disabled: {status.reason or 'no reason was given'}"
    return f"it has the trait {STATUS_DISABLED}" if STATUS_DISABLED in host.traits else "enabled"
