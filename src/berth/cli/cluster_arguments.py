"""The words of ``berth cluster``."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from berth.cli.arguments_of_parts import add_command, add_whom, seconds, whole
from berth.model.clusters import NODES_MAX, RATIO_MAX

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_WAIT_S: Final = 3600
_DAY_S: Final = 86_400
_GROUP_KEYS: Final = ("name", "flavor", "image", "count", "process")
_FILE_IS: Final = "TOML or JSON: what POST /berth/v1/clusters takes, {'cluster': {...}}"


def add_cluster(commands: "Commands") -> None:
    cluster = add_command(
        commands,
        "cluster",
        "create, watch, scale, mend and delete clusters of servers",
        "It shows the token in BERTH_TOKEN.",
    )
    actions = cluster.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_create(actions)
    _add_list(actions)
    _add_show(actions)
    _add_scale(actions)
    _add_replace(actions)
    _add_delete(actions)
    _add_template(actions)


def _add_create(actions: "Commands") -> None:
    create = add_command(
        actions,
        "create",
        "create a cluster, from a file or from flags",
        "berth cluster create --name db --anti-affinity voter \\\n"
        "  --node-group name=voters,flavor=m1.small,image=cirros,count=5,process=voter",
    )
    _add_description(create)
    _add_wait(create, "until it is built")
    add_whom(create)


def _add_list(actions: "Commands") -> None:
    add_whom(add_command(actions, "list", "list clusters"))


def _add_show(actions: "Commands") -> None:
    show = add_command(
        actions,
        "show",
        "show a cluster and its nodes",
        "With --watch the status is 0 when it is well in the end, and 1 when it is not.",
    )
    _add_which(show)
    _add_wait(show, "one line per change until nothing is under way", "--watch")
    add_whom(show)


def _add_scale(actions: "Commands") -> None:
    scale = add_command(actions, "scale", "give node groups more or fewer nodes, add and remove node groups")
    _add_which(scale)
    scale.add_argument(
        "counts",
        metavar="NODE_GROUP=COUNT",
        nargs="*",
        type=_count,
        help=f"how many nodes it shall have [0 to {NODES_MAX}]",
    )
    scale.add_argument(
        "--add", metavar="FILE", type=Path, help="node groups to add: {'node_groups': [...]} in TOML or JSON"
    )
    scale.add_argument(
        "--remove", metavar="NODE_GROUP", action="append", default=[], help="with all its nodes"
    )
    scale.add_argument(
        "--ratio", metavar="N", type=whole(1, RATIO_MAX), help="refused unless it is the cluster's own"
    )
    _add_wait(scale, "until it has the nodes that it shall have")
    add_whom(scale)


def _add_replace(actions: "Commands") -> None:
    replace = add_command(actions, "replace", "give a node that has failed another server")
    _add_which(replace)
    replace.add_argument("node", metavar="NODE", help="as 'berth cluster show' names it")
    replace.add_argument("--force", action="store_true", help="though nothing seems to be wrong with it")
    _add_wait(replace, "until the node is there again")
    add_whom(replace)


def _add_delete(actions: "Commands") -> None:
    delete = add_command(actions, "delete", "delete a cluster and all its servers")
    _add_which(delete)
    _add_wait(delete, "until nothing is left of it")
    add_whom(delete)


def _add_template(actions: "Commands") -> None:
    template = add_command(
        actions,
        "template",
        "write a cluster as Heat templates, for a stock OpenStack",
        "No region is asked. Existing files are left alone, unless it is forced.",
    )
    _add_description(template)
    template.add_argument(
        "--output", metavar="DIR", type=Path, default=Path(), help="where the templates go [here]"
    )
    template.add_argument("--force", action="store_true", help="write over what is there")


# -- what several of them take ------------------------------------------------------------------


def _add_which(command: argparse.ArgumentParser) -> None:
    command.add_argument("cluster", metavar="ID|NAME", help="the cluster")


def _add_wait(command: argparse.ArgumentParser, what: str, flag: str = "--wait") -> None:
    command.add_argument(flag, dest="wait", action="store_true", help=what)
    command.add_argument(
        "--timeout",
        metavar="S",
        type=seconds(1, _DAY_S),
        default=float(_WAIT_S),
        help=f"seconds after which the waiting ends [1 to {_DAY_S}, default {_WAIT_S}]",
    )


def _add_description(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", type=Path, nargs="?", help=_FILE_IS)
    flags = command.add_argument_group("instead of a file")
    flags.add_argument("--name", help="of the cluster")
    flags.add_argument(
        "--anti-affinity",
        metavar="PROCESS",
        action="append",
        default=[],
        help="a process whose nodes keep away from each other; may be repeated",
    )
    flags.add_argument(
        "--ratio",
        metavar="N",
        type=whole(1, RATIO_MAX),
        help=f"how many of these nodes may share a host [1 to {RATIO_MAX}, default 1]",
    )
    flags.add_argument(
        "--domain", metavar="KIND", help="what they do not share: host, rack, zone, ... [host]"
    )
    flags.add_argument(
        "--node-group",
        dest="node_groups",
        metavar="KEY=VALUE,...",
        type=_node_group,
        action="append",
        default=[],
        help=f"keys: {', '.join(_GROUP_KEYS)}; process and the option itself may be repeated",
    )


# -- values -------------------------------------------------------------------------------------


def _count(text: str) -> tuple[str, int]:
    name, equals, count = text.rpartition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is refused: NODE_GROUP=COUNT is expected")
    return name, whole(0, NODES_MAX)(count)


def _node_group(text: str) -> dict[str, object]:
    """A node group as the API has it."""
    found: dict[str, object] = {}
    processes: list[str] = []
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if key not in _GROUP_KEYS or not equals or not value:
            raise argparse.ArgumentTypeError(
                f"{part!r} is refused: KEY=VALUE is expected, with one of the keys {', '.join(_GROUP_KEYS)}"
            )
        if key == "process":
            processes.append(value)
        elif key in found:
            raise argparse.ArgumentTypeError(f"{key} is given more than once in {text!r}")
        else:
            found[key] = whole(0, NODES_MAX)(value) if key == "count" else value
    return {**found, "processes": processes}
