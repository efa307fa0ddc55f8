"""Quotas: how much of each thing a project may have.

A limit is the project's own, if one was set for it; else that of the class ``default``, if one was set there;
else the region's setting. What a project has is counted from its records: a server of any state counts, one
that is shelved and offloaded too, as in Nova. While a resize waits for its confirmation the larger of both
flavors counts, so a revert never goes beyond a quota. Server groups of a cluster are the cluster's own and do
not count.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from berth.model.clusters import Cluster
from berth.model.events import AnyRecord
from berth.model.groups import Group
from berth.model.servers import Image, QuotaSet, Server

UNLIMITED: Final = -1
LIMIT_MAX: Final = 2**31 - 1
DEFAULT_CLASS: Final = "class:default"


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """A limit for each resource; -1: none. ``image_size_total`` is in MiB, as in Glance; ``metadata_items``
    are of one server, ``server_group_members`` of one group, ``key_pairs`` of one user."""

    instances: int = 10
    cores: int = 20
    ram: int = 51_200
    metadata_items: int = 128
    server_groups: int = 10
    server_group_members: int = 10
    images: int = 100
    image_size_total: int = 10_240
    clusters: int = 10
    key_pairs: int = 100


RESOURCES: Final = Quotas.__struct_fields__

Amounts = Mapping[str, int]
"""By resource. Sizes of images are in bytes, as ``image_bytes``."""

_NOTHING: Final[Amounts] = {}


def project_key(project: str) -> str:
    """The id of a project's own quotas."""
    return f"project:{project}"


def amounts_of(record: AnyRecord | Group | None) -> tuple[str, Amounts]:
    """The project that a record counts for, and what it counts there."""
    amounts = _AMOUNTS.get(type(record))
    return _UNCOUNTED if amounts is None else amounts(record)


def is_counted(record: AnyRecord | Group | None) -> bool:
    """Whether a record of this kind counts for anything."""
    return type(record) in _AMOUNTS


def _of_server(server: Server) -> tuple[str, Amounts]:
    cores, ram = server.flavor.vcpus, server.flavor.memory_mb
    if server.flavor_before is not None:
        cores, ram = max(cores, server.flavor_before.vcpus), max(ram, server.flavor_before.memory_mb)
    return server.project, {"instances": 1, "cores": cores, "ram": ram}


_UNCOUNTED: Final[tuple[str, Amounts]] = ("", _NOTHING)
# By kind, because most records count nothing and there are thousands in one change.
_AMOUNTS: Final[Mapping[type, Callable[[Any], tuple[str, Amounts]]]] = {
    Server: _of_server,
    Image: lambda image: (image.owner, {"images": 1, "image_bytes": image.size or 0}),
    Cluster: lambda cluster: (cluster.project, {"clusters": 1, "server_groups": -len(cluster.groups)}),
    Group: lambda group: (group.project, {"server_groups": 1}),
}


def limits_in(quotas: Quotas, *sets: QuotaSet | None) -> dict[str, int]:
    """The limits: those of the first set that has one, or else of ``quotas``."""
    limits = msgspec.structs.asdict(quotas)
    for one in reversed(sets):
        if one is not None:
            limits |= one.limits
    return limits
