"""Hosts of the architecture that the image is for: those with its trait, HW_ARCH_X86_64 or another.

A host that does not say its architecture takes no image that asks for one, as in Nova.
"""

from typing import Final

from berth.model.scheduling import ScheduleRequest
from berth.scheduler.spec_table import ARCHITECTURES
from berth.search.providers import any_of
from berth.view import Mask, ProviderRecord, View

FOLLOWS_CLAIMS = False
_PROPERTY: Final = "hw_architecture"
_NAMES: Final = {trait: name for name, trait in ARCHITECTURES.items()}


def describe_request(view: View, request: ScheduleRequest) -> str | None:
    wanted = _wanted(request)
    return None if wanted is None else f"the architecture {wanted}"


def passing_hosts(view: View, request: ScheduleRequest) -> Mask:
    return any_of(view, [view.rows_with_trait(ARCHITECTURES[_wanted(request) or ""])])


def describe_host(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    names = sorted(_NAMES[trait] for trait in host.traits if trait in _NAMES)
    return f"it is {' and '.join(names)}" if names else "it does not say its architecture"


def _wanted(request: ScheduleRequest) -> str | None:
    return next((value for name, value in request.image if name == _PROPERTY), None)
