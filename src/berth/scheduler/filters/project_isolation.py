"""Hosts that are open to the project.

    A host's projects are those that its aggregates list under filter_tenant_id, and under keys that begin so.
    It takes servers of its projects; if it has none, of all.

In Nova: AggregateMultiTenancyIsolation. Without such a key on any aggregate the filter does not apply.
"""

from berth.model.scheduling import ScheduleRequest
from berth.scheduler.hosts import hosts_with_metadata, metadata_values
from berth.scheduler.spec_table import PROJECTS_KEY
from berth.view import Mask, ProviderRecord, View

FOLLOWS_CLAIMS = False


def describe_request(view: View, request: ScheduleRequest) -> str | None:
    return f"a host that is open to the project {request.project}" if _keys(view) else None


def passing_hosts(view: View, request: ScheduleRequest) -> Mask:
    keys = _keys(view)
    project = request.project
    return ~hosts_with_metadata(view, keys) | hosts_with_metadata(view, keys, lambda value: value == project)


def describe_host(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    projects = metadata_values(view, host, _keys(view))
    return f"it is for {' and '.join(projects)} alone" if projects else "it is for all projects"


def _keys(view: View) -> list[str]:
    return [key for key in view.groups.keys if key.startswith(PROJECTS_KEY)]
