"""The words of the commands that run a cell, agents or all of it, and of those that look after it.

Every number has a range. A secret has no flag (``secrets``).
"""

import argparse
import math
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from berth.cli.cell_names import CELL_NAME, CELL_NAME_IS, CELLS_MAX
from berth.runtime.settings import BY_NAME

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

HOSTS_MAX: Final = 10_000
_DAY_S: Final = 86_400
_SEED_MAX: Final = (1 << 63) - 1
_FORMAT: Final = argparse.RawDescriptionHelpFormatter


def add_parts(commands: "Commands") -> None:
    _add_up(commands)
    _add_cell(commands)
    _add_agent(commands)
    _add_sim(commands)
    _add_doctor(commands)


# -- the commands -------------------------------------------------------------------------------


def _add_up(commands: "Commands") -> None:
    up = add_command(
        commands,
        "up",
        "run a region, its cells and a simulated fleet in one go, for a first look",
        "Everything it makes is in the folder --data; clouds.yaml there is for the openstack command.",
    )
    up.add_argument(
        "--listen", metavar="HOST:PORT", type=_listen, default=BY_NAME["listen"].default, help="the region's"
    )
    up.add_argument("--data", metavar="DIR", type=Path, default=Path("data"), help="folder for all of it")
    _add_fleet(up, default_hosts=20)
    up.add_argument("--cells", metavar="N", type=whole(1, CELLS_MAX), default=2, help="cells [1 to 64]")
    _add_seconds(up, "--silence-seconds", 5, 0.5, 3600, "after which a host that is not heard of is down")
    _add_behaviour(up, build_s=1, live_migrate_s=10)
    _add_logging(up, "warning")


def _add_cell(commands: "Commands") -> None:
    cell = add_command(
        commands,
        "cell",
        "run the conductor of a cell until told to stop (SIGTERM or Ctrl-C)",
        "It knows its own database and Placement's endpoint, and calls nobody else. It shows Placement the\n"
        "token in BERTH_PLACEMENT_TOKEN (or one of Keystone's, of the user in BERTH_KEYSTONE_AUTH_URL,\n"
        "_USERNAME, _PASSWORD and _PROJECT_NAME). Hosts join it with the token in BERTH_AGENT_TOKEN.",
    )
    cell.add_argument(
        "--name", type=_cell_name, required=True, help=f"as the region knows it: {CELL_NAME_IS}"
    )
    cell.add_argument(
        "--database",
        metavar="URL",
        help="where the cell's journal is kept; a password is better kept in BERTH_DATABASE",
    )
    cell.add_argument("--placement", metavar="URL", type=_url, required=True, help="Placement's endpoint")
    cell.add_argument(
        "--listen", metavar="HOST:PORT", type=_listen, required=True, help="address of the agent API"
    )
    _add_ca_file(cell)
    cell.add_argument("--placement-token-file", metavar="FILE", type=Path, help="instead of the variable")
    cell.add_argument("--agent-token-file", metavar="FILE", type=Path, help="instead of the variable")
    _add_seconds(cell, "--silence-seconds", 30, 0.5, 3600, "after which a host that is not heard of is down")
    _add_seconds(cell, "--step-seconds", 60, 0.1, _DAY_S, "that an agent has for an ordinary order")
    _add_seconds(
        cell, "--build-seconds", 300, 0.1, _DAY_S, "that it has to build, rebuild or take a snapshot"
    )
    _add_seconds(cell, "--live-migrate-seconds", 3600, 0.1, _DAY_S, "that it has for a live migration")
    _add_logging(cell, "info")


def _add_agent(commands: "Commands") -> None:
    agent = add_command(
        commands,
        "agent",
        "run the agents of hosts until told to stop (SIGTERM or Ctrl-C)",
        "A host that its cell does not know yet joins with the token in BERTH_AGENT_TOKEN. From then on it\n"
        "is known by a credential of its own, which is kept in the folder --data. With an ACTION nothing is\n"
        "run: the credentials of hosts are changed, revoked, or made anew.",
    )
    agent.add_argument("--conductor", metavar="URL", type=_url, help="the cell's address (required)")
    _add_ca_file(agent)
    agent.add_argument("--driver", choices=("sim",), help="sim: simulated hosts (required)")
    agent.add_argument("--data", metavar="DIR", type=Path, help="what hosts must not forget (required)")
    agent.add_argument("--agent-token-file", metavar="FILE", type=Path, help="instead of the variable")
    _add_fleet(agent, default_hosts=1)
    agent.add_argument("--prefix", metavar="NAME", type=_prefix, default="host", help="of the hosts' names")
    agent.add_argument(
        "--cell",
        metavar="NAME",
        type=_cell_name,
        help="run only the hosts of this cell: those that name it, and its share of those that name none",
    )
    agent.add_argument(
        "--cells", metavar="A,B,...", type=_cell_names, default=(), help="all cells that share the fleet"
    )
    _add_behaviour(agent, build_s=0.5, live_migrate_s=3)
    _add_logging(agent, "info")
    _add_agent_actions(agent)


def _add_agent_actions(agent: argparse.ArgumentParser) -> None:
    actions = agent.add_subparsers(dest="action", metavar="ACTION")
    rotate = add_command(actions, "rotate", "give hosts new credentials; their agents may be running")
    rotate.add_argument("hosts_named", metavar="HOST", nargs="*", help="[all hosts of the folder]")
    rotate.add_argument("--conductor", metavar="URL", type=_url, required=True, help="the cell's address")
    _add_ca_file(rotate)
    rotate.add_argument("--data", metavar="DIR", type=Path, required=True, help="as the agents have it")
    for action, summary in (
        ("revoke", "shut the agent of a host out of its cell; the host is down soon"),
        ("readmit", "have a host join again, with the join token and a new credential"),
    ):
        command = add_command(actions, action, summary)
        command.add_argument("host_named", metavar="HOST", help="the host's name, or its uuid")
        command.add_argument(
            "--database",
            metavar="URL",
            help="the cell's database; a password is better kept in BERTH_DATABASE",
        )


def _add_sim(commands: "Commands") -> None:
    sim = add_command(commands, "sim", "break or heal a host of the simulated fleet of 'berth up'")
    actions = sim.add_subparsers(dest="action", metavar="ACTION", required=True)
    for action, summary in (
        ("break", "let a host die: it says and does nothing any more"),
        ("heal", "bring a host back, with everything that is on its disk"),
    ):
        command = add_command(actions, action, summary)
        command.add_argument("host", metavar="HOST", help="the host's name, such as host-0001")
        command.add_argument("--data", metavar="DIR", type=Path, default=Path("data"), help="as given to up")


def _add_doctor(commands: "Commands") -> None:
    doctor = add_command(
        commands,
        "doctor",
        "compare servers and migrations with the books, and say what does not fit",
        "It shows the token in BERTH_TOKEN. The status is 0 if nothing is wrong, and 1 if something is.",
    )
    add_whom(doctor)
    doctor.add_argument(
        "--repair", action="store_true", help="mend what is safe to mend; first say what that is"
    )
    doctor.add_argument("--yes", action="store_true", help="repair without asking")


# -- what several of them take ------------------------------------------------------------------


def add_whom(command: argparse.ArgumentParser) -> None:
    """Whom a command is to ask, and as whom (``whom``)."""
    where = command.add_mutually_exclusive_group()
    where.add_argument(
        "--url", metavar="URL", type=_url, default=f"http://{BY_NAME['listen'].default}", help="the region's"
    )
    where.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        help="the folder of 'berth up', which says where it is and who may ask",
    )
    _add_ca_file(command)
    command.add_argument("--token-file", metavar="FILE", type=Path, help="instead of the variable")


def add_command(commands: "Commands", name: str, summary: str, more: str = "") -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.\n{more}".strip(),
        formatter_class=_FORMAT,
        allow_abbrev=False,
    )


def _add_ca_file(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--ca-file",
        metavar="FILE",
        type=_ca_file,
        help="certificates to check a server's certificate with, instead of the system's (https only)",
    )


def _add_fleet(command: argparse.ArgumentParser, default_hosts: int) -> None:
    which = command.add_mutually_exclusive_group()
    which.add_argument(
        "--hosts", metavar="N", type=whole(1, HOSTS_MAX), default=default_hosts, help=f"[1 to {HOSTS_MAX}]"
    )
    which.add_argument("--fleet", metavar="FILE", type=Path, help="TOML file that describes the hosts")
    command.add_argument(
        "--seed", metavar="N", type=whole(0, _SEED_MAX), help="for the same failures at every run"
    )


def _add_behaviour(command: argparse.ArgumentParser, *, build_s: float, live_migrate_s: float) -> None:
    _add_seconds(
        command, "--build-seconds", build_s, 0, 3600, "that a simulated host takes to build a server"
    )
    _add_seconds(
        command, "--live-migrate-seconds", live_migrate_s, 0, 3600, "that it takes for a live migration"
    )


def _add_logging(command: argparse.ArgumentParser, level: str) -> None:
    for name, default in (("log_level", level), ("log_format", "auto")):
        setting = BY_NAME[name]
        command.add_argument(
            setting.flag, choices=setting.choices, default=default, help=f"{setting.about.help} [{default}]"
        )


def _add_seconds(
    command: argparse.ArgumentParser, flag: str, default: float, low: float, high: float, what: str
) -> None:
    command.add_argument(
        flag,
        metavar="S",
        type=seconds(low, high),
        default=float(default),
        help=f"seconds {what} [{low:g} to {high:g}, default {default:g}]",
    )


# -- values -------------------------------------------------------------------------------------


def whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high:
            return int(text)
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")

    return read


def seconds(low: float, high: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if low <= value <= high:
            return value
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from {low:g} to {high:g}")

    return read


def _listen(text: str) -> str:
    check = BY_NAME["listen"].about.check
    assert check is not None
    problem = check(text)
    if problem is not None:
        raise argparse.ArgumentTypeError(f"{text!r} is refused: {problem}")
    return text


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise argparse.ArgumentTypeError(f"{text!r} is refused: it must look like http://HOST:PORT")
    return text.rstrip("/")


def _ca_file(text: str) -> Path:
    try:
        ssl.create_default_context(cafile=text)
    except ssl.SSLError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is refused: it has no certificate in PEM format"
        ) from None
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is refused: {error.strerror}") from None
    return Path(text)


def _cell_name(text: str) -> str:
    if not CELL_NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is refused: a name is {CELL_NAME_IS}")
    return text


def _cell_names(text: str) -> tuple[str, ...]:
    names = tuple(_cell_name(name) for name in text.split(","))
    if len(set(names)) < len(names) or len(names) > CELLS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is refused: up to {CELLS_MAX} names, each once")
    return names


def _prefix(text: str) -> str:
    if not (1 <= len(text) <= 100 and text.isascii() and text.replace("-", "").replace(".", "").isalnum()):
        raise argparse.ArgumentTypeError(f"{text!r} is refused: letters, digits, '-' and '.', 100 at most")
    return text
