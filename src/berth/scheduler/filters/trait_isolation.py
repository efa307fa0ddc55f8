"""Hosts that are reserved for traits take only requests for these traits.

    A host is reserved for the traits that its aggregates say are required (trait:NAME = required).
    It takes requests that require all of them, in the flavor or in the image.

In Nova: isolated aggregates. Without such a key on any aggregate the filter does not apply.
"""

from typing import Final

from berth.model.scheduling import ScheduleRequest
from berth.scheduler.hosts import hosts_with_metadata
from berth.view import Mask, ProviderRecord, View

FOLLOWS_CLAIMS = False
_KEY: Final = "trait:"


def describe_request(view: View, request: ScheduleRequest) -> str | None:
    if not _keys(view):
        return None
    required = " and ".join(sorted(_required(request)))
    return (
        f"a host that is kept for nothing but {required}" if required else "a host that is kept for no trait"
    )


def passing_hosts(view: View, request: ScheduleRequest) -> Mask:
    required = _required(request)
    others = [key for key in _keys(view) if key.removeprefix(_KEY) not in required]
    return ~hosts_with_metadata(view, others, _is_required)


def describe_host(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    keys = view.groups.keys
    kept_for = [
        key.removeprefix(_KEY)
        for key in _keys(view)
        if any(_is_required(keys[key].get(id, "")) for id in host.aggregates)
    ]
    return f"it is kept for {' and '.join(sorted(kept_for))}" if kept_for else "it is kept for no trait"


def _keys(view: View) -> list[str]:
    return [key for key in view.groups.keys if key.startswith(_KEY)]


def _is_required(value: str) -> bool:
    return value == "required"


def _required(request: ScheduleRequest) -> set[str]:
    """The traits that the request cannot do without."""
    ask = request.ask
    groups = (any_of for group in ask.groups for any_of in group.required)
    alone = {any_of[0] for any_of in (*groups, *ask.guest_required) if len(any_of) == 1}
    return alone | ask.root_required | ask.split_required
