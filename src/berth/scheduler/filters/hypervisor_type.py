"""Hosts whose driver runs guests of the hypervisor that the image is for.

A host without an agent does not say what it runs, and takes no image that asks, as in Nova.
"""

from typing import Final

import numpy as np

from berth.model.ids import ProviderId
from berth.model.scheduling import ScheduleRequest
from berth.model.servers import Host
from berth.view import Mask, ProviderRecord, View

FOLLOWS_CLAIMS = False
_PROPERTY: Final = "img_hv_type"
_RUNS: Final = {"sim": ("fake",)}
"""What each driver runs, in Nova's words."""


def describe_request(view: View, request: ScheduleRequest) -> str | None:
    wanted = _wanted(request)
    return None if wanted is None else f"the hypervisor {wanted}"


def passing_hosts(view: View, request: ScheduleRequest) -> Mask:
    wanted = _wanted(request)
    mask = np.zeros(view.row_end, np.bool_)
    for driver, types in _RUNS.items():
        if wanted in types:
            providers = (view.providers.get(ProviderId(host.id)) for host in _hosts(view, driver))
            mask[[provider.row for provider in providers if provider is not None]] = True
    return mask


def describe_host(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    record = view.records.get(Host, host.id)
    if record is None:
        return "it has no agent, and does not say its hypervisor"
    return f"its driver {record.driver} runs {' and '.join(_RUNS.get(record.driver, ())) or 'none of these'}"


def _wanted(request: ScheduleRequest) -> str | None:
    return next((value for name, value in request.image if name == _PROPERTY), None)


def _hosts(view: View, driver: str) -> list[Host]:
    return view.records.find(Host, "driver", driver)
