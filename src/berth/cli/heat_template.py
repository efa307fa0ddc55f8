"""A cluster as OpenStack Heat templates (HOT), for a deployment on a stock OpenStack.

    NAME.yaml              the server groups, and a ResourceGroup for each node group
    NAME-apart-node.yaml   a node of an anti-affinity process: a server with a hint
    NAME-node.yaml         any other node: a server

Heat resolves functions in a ResourceGroup before it knows an index, and puts the index into texts only after
that. So what is chosen by index is chosen one level below: each node is given the whole list
``SERVER_GROUP_NAMES``, as long as its node group, with the group of node i at index i, and its
own index, and reads its scheduler hint from there. Nodes are distributed over groups as Berth does it.

The network is a parameter. Without one Nova is asked to choose (``auto``), which Berth's own compute API
accepts too: it has no networks, and refuses a server that names one.
"""

from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from berth.api.native.cluster_bodies import NewCluster, NewNodeGroup
from berth.cli.command import CommandError
from berth.model.groups import HOST

VERSION: Final = "2018-08-31"
INDEX: Final = "%index%"
_GROUP: Final = "server_group_{}"


class Written(NamedTuple):
    """``command`` is what deploys it."""

    files: tuple[Path, ...]
    command: str


def write(cluster: NewCluster, folder: Path, *, overwrite: bool) -> Written:
    """Write a cluster's templates into a folder; CommandError if they cannot be written."""
    texts = {folder / name: text for name, text in templates(cluster).items()}
    taken = [str(path) for path in texts if path.exists()]
    if taken and not overwrite:
        raise CommandError(
            f"{taken[0]} is there already: choose another folder with --output, or use --force"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{folder}: the templates cannot be written: {error.strerror}") from error
    main = next(iter(texts))
    return Written(tuple(texts), f"openstack stack create --template {main} {cluster.name}")


def templates(cluster: NewCluster) -> dict[str, str]:
    """The texts of a cluster's templates by the names of their files, the whole cluster's first."""
    _refuse_what_heat_cannot(cluster)
    apart, plain = f"{cluster.name}-apart-node.yaml", f"{cluster.name}-node.yaml"
    kinds = {group.name: apart if _keeps_apart(cluster, group) else plain for group in cluster.node_groups}
    made: dict[str, dict[str, Any]] = {f"{cluster.name}.yaml": _make_cluster(cluster, kinds)}
    if apart in kinds.values():
        made[apart] = _make_node(is_apart=True)
    if plain in kinds.values():
        made[plain] = _make_node(is_apart=False)
    return {name: _format_template(template) for name, template in made.items()}


def _refuse_what_heat_cannot(cluster: NewCluster) -> None:
    if cluster.domain != HOST:
        raise CommandError(
            f"anti_affinity_domain is {cluster.domain}, and the server groups of a stock OpenStack know "
            "hosts alone: leave it out"
        )
    for group in cluster.node_groups:
        if group.image is None:
            raise CommandError(
                f"node group {group.name} names no image, and on a stock OpenStack it takes one"
            )
        if group.needs:
            raise CommandError(
                f"node group {group.name} has needs, and a server of a stock OpenStack cannot be given any: "
                "leave them out"
            )


def _format_template(template: dict[str, Any]) -> str:
    return str(yaml.safe_dump(template, sort_keys=False, width=100, allow_unicode=True))


# -- the whole cluster --------------------------------------------------------------------------


def _make_cluster(cluster: NewCluster, kinds: dict[str, str]) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    ratio = cluster.ratio if cluster.anti_affinity else 0
    for number in range(1, ratio + 1):
        resources[_GROUP.format(number)] = {
            "type": "OS::Nova::ServerGroup",
            "properties": {"name": f"{cluster.name}-{number}", "policies": ["anti-affinity"]},
        }
    dealt = 0
    outputs: dict[str, Any] = {}
    for group in cluster.node_groups:
        names = None
        if _keeps_apart(cluster, group):
            names = [_GROUP.format((dealt + index) % ratio + 1) for index in range(group.count)]
            dealt += group.count
        resources[f"nodes_{group.name}"] = _make_nodes(cluster, group, kinds[group.name], names)
        outputs[f"servers_{group.name}"] = {
            "description": f"The servers of the node group {group.name}.",
            "value": {"get_attr": [f"nodes_{group.name}", "refs"]},
        }
    return {
        "heat_template_version": VERSION,
        "description": f"The cluster {cluster.name}. Written by 'berth cluster template'.",
        "parameters": {
            "network": {
                **_make_parameter("The network that the nodes are connected to. Empty: Nova chooses one."),
                "default": "",
            }
        },
        "resources": resources,
        "outputs": outputs,
    }


def _make_nodes(
    cluster: NewCluster, group: NewNodeGroup, kind: str, server_groups: list[str] | None
) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "name": f"{cluster.name}-{group.name}-{INDEX}",
        "flavor": group.flavor,
        "image": group.image,
        "network": {"get_param": "network"},
    }
    if server_groups is not None:
        properties["instance_index"] = INDEX
        properties["SERVER_GROUP_NAMES"] = [{"get_resource": name} for name in server_groups]
    return {
        "type": "OS::Heat::ResourceGroup",
        "properties": {
            "count": group.count,
            "index_var": INDEX,
            "resource_def": {"type": kind, "properties": properties},
        },
    }


def _keeps_apart(cluster: NewCluster, group: NewNodeGroup) -> bool:
    return not set(cluster.anti_affinity).isdisjoint(group.processes)


# -- a node -------------------------------------------------------------------------------------


def _make_node(*, is_apart: bool) -> dict[str, Any]:
    parameters = {
        "name": _make_parameter("What the server is called."),
        "flavor": _make_parameter("Its flavor."),
        "image": _make_parameter("Its image."),
        "network": _make_parameter("The network that it is connected to. Empty: Nova chooses one."),
    }
    server: dict[str, Any] = {name: {"get_param": name} for name in ("name", "flavor", "image")}
    named, chosen_by_nova = [{"network": {"get_param": "network"}}], [{"allocate_network": "auto"}]
    server["networks"] = {"if": ["names_no_network", chosen_by_nova, named]}
    if is_apart:
        parameters["instance_index"] = _make_parameter(
            "Which node of its node group it is, from 0.", "number"
        )
        parameters["SERVER_GROUP_NAMES"] = _make_parameter(
            "For each node of the node group, the server group that it is in.", "comma_delimited_list"
        )
        chosen = {"get_param": ["SERVER_GROUP_NAMES", {"get_param": "instance_index"}]}
        server["scheduler_hints"] = {"group": chosen}
    return {
        "heat_template_version": VERSION,
        "description": "A node of a cluster. Written by 'berth cluster template'.",
        "parameters": parameters,
        "conditions": {"names_no_network": {"equals": [{"get_param": "network"}, ""]}},
        "resources": {"server": {"type": "OS::Nova::Server", "properties": server}},
        "outputs": {
            "OS::stack_id": {
                "description": "The server: what is referred to as this node.",
                "value": {"get_resource": "server"},
            }
        },
    }


def _make_parameter(description: str, kind: str = "string") -> dict[str, str]:
    return {"type": kind, "description": description}
