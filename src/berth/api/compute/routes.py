"""Every route of the compute API. Each module below says which are its own."""

from typing import Final

from berth.api.compute import (
    absent,
    aggregates,
    flavor_access,
    flavor_specs,
    flavors,
    hypervisors,
    instance_actions,
    migrations,
    quotas,
    server_actions,
    server_groups,
    server_metadata,
    servers,
    services,
    zones,
)
from berth.api.kernel.call import Handler
from berth.api.kernel.router import Route

ROUTES: Final[tuple[Route[Handler], ...]] = (
    *servers.ROUTES,
    *server_metadata.ROUTES,
    *server_actions.ROUTES,
    *migrations.ROUTES,
    *instance_actions.ROUTES,
    *flavors.ROUTES,
    *flavor_specs.ROUTES,
    *flavor_access.ROUTES,
    *server_groups.ROUTES,
    *aggregates.ROUTES,
    *zones.ROUTES,
    *hypervisors.ROUTES,
    *services.ROUTES,
    *quotas.ROUTES,
    *absent.ROUTES,
)
