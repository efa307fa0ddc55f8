"""Clusters as they are described in files and flags. Everything is checked as the API would check it, before
it is sent: a refusal names where it stood, and what would do."""

import argparse
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from berth.api.native.bodies_clusters import (
    CreateCluster,
    NewCluster,
    NewNodeGroup,
    objection,
    objection_to_groups,
)
from berth.model.clusters import NODE_GROUPS_MAX

_BYTES_MAX: Final = 4 << 20


class ClusterFileError(Exception):
    """No cluster is described there. The message is for the user, and complete."""


class NodeGroups(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a file of node groups to add has."""

    node_groups: Annotated[tuple[NewNodeGroup, ...], Meta(min_length=1, max_length=NODE_GROUPS_MAX)]


def described(arguments: argparse.Namespace) -> NewCluster:
    """The cluster of a file, or else of flags."""
    flags = _flags(arguments)
    if arguments.file is not None and flags:
        raise ClusterFileError(
            f"{arguments.file}: a file says it all: leave out --name, --node-group and the like"
        )
    where = "the flags" if arguments.file is None else str(arguments.file)
    given = {"cluster": flags} if arguments.file is None else _read(arguments.file)
    cluster = _converted(given, CreateCluster, where).cluster
    _refuse(where, objection(cluster))
    return cluster


def node_groups(file: Path) -> tuple[NewNodeGroup, ...]:
    """The node groups of a file."""
    found = _converted(_read(file), NodeGroups, str(file)).node_groups
    _refuse(str(file), objection_to_groups(found))
    return found


def _flags(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {
        "name": arguments.name,
        "anti_affinity": arguments.anti_affinity,
        "anti_affinity_ratio": arguments.ratio,
        "anti_affinity_domain": arguments.domain,
        "node_groups": arguments.node_groups,
    }
    return {name: value for name, value in given.items() if value not in (None, [])}


def _read(file: Path) -> Any:
    try:
        with file.open("rb") as opened:
            content = opened.read(_BYTES_MAX + 1)
    except OSError as error:
        raise ClusterFileError(f"{file} cannot be read: {error.strerror}") from error
    if len(content) > _BYTES_MAX:
        raise ClusterFileError(f"{file} is too large: {_BYTES_MAX} bytes are the most there can be")
    is_json = file.suffix == ".json" or content.lstrip().startswith(b"{")
    try:
        return msgspec.json.decode(content) if is_json else msgspec.toml.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        kind = "JSON" if is_json else "TOML"
        raise ClusterFileError(f"{file}: this is not {kind}: {error}") from error


T = TypeVar("T", CreateCluster, NodeGroups)


def _converted(given: Any, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise ClusterFileError(f"{where}: {error}") from None


def _refuse(where: str, problem: str | None) -> None:
    if problem is not None:
        raise ClusterFileError(f"{where}: {problem}")
