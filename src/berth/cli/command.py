"""What commands have in common: the error that ends them, and the arguments and secrets that several take.

Every number has a range. A secret has no option, because every user of a machine can read the command lines
of its processes: it comes from the environment, or from a file that only its owner may read.
"""

import argparse
import math
import os
import re
import ssl
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from berth.runtime import tracing
from berth.runtime.secrets import refuse_others
from berth.runtime.settings import BY_NAME, Setting, redact_password

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[Any]

CELLS_MAX: Final = 64
CELL_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
CELL_NAME_IS: Final = "1 to 63 of a-z, 0-9, '_', '.' and '-', beginning with a letter or a digit"
DAY_S: Final = 86_400
HOSTS_MAX: Final = 10_000
_SEED_MAX: Final = (1 << 63) - 1


class CommandError(Exception):
    """The command cannot be carried out. The message is for the operator, and complete; the status is 2."""


def describe(command: argparse.ArgumentParser, text: str) -> None:
    """Say more about a command in its help, below the summary."""
    command.description = f"{command.description}\n{text}"


def add_action(actions: "Commands", name: str, summary: str, more: str = "") -> argparse.ArgumentParser:
    """The parser of an action of a command, such as ``berth cluster create``."""
    action: argparse.ArgumentParser = actions.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.\n{more}".strip(),
    )
    return action


# -- options that are settings ------------------------------------------------------------------


def add_options(settings: "argparse._ArgumentGroup", table: Sequence[Setting]) -> None:
    """An option for every setting of a table that is not a secret."""
    for setting in table:
        if setting.about.secret:
            continue
        words = f"{setting.about.help} [{_format_limits(setting)}]".replace("%", "%%")
        if setting.kind is bool:
            action = argparse.BooleanOptionalAction
            settings.add_argument(setting.flag, action=action, default=argparse.SUPPRESS, help=words)
        else:
            metavar = _format_metavar(setting)
            settings.add_argument(setting.flag, metavar=metavar, default=argparse.SUPPRESS, help=words)


def _format_metavar(setting: Setting) -> str:
    if setting.about.metavar is not None:
        return setting.about.metavar
    if setting.choices:
        return "|".join(setting.choices)
    if setting.kind in (int, float):
        return "N"
    return "A,B,..." if setting.kind is tuple else setting.name.rpartition("_")[2].upper()


def _format_limits(setting: Setting) -> str:
    limits = f"{setting.about.low} to {setting.about.high}, " if setting.about.low is not None else ""
    return f"{limits}default {format_value(setting.default)}"


def format_value(value: object) -> str:
    """A setting's value for people, without the password that it may hold."""
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(redact_password(item) for item in value)
    return redact_password(str(value))


def read_options(arguments: argparse.Namespace, table: Sequence[Setting]) -> dict[str, str]:
    """The settings of a table that were given as options, as texts."""
    given = vars(arguments)
    return {setting.name: _format_option(given[setting.name]) for setting in table if setting.name in given}


def _format_option(value: str | bool) -> str:
    return value if isinstance(value, str) else str(value).lower()


# -- options that several commands take ---------------------------------------------------------


def add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON instead of text")


def add_ca_file(command: argparse._ActionsContainer) -> None:
    command.add_argument(
        "--ca-file",
        metavar="FILE",
        type=_ca_file,
        help="certificates to check a server's certificate with, instead of the system's (https only)",
    )


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


def add_token_file(command: argparse._ActionsContainer, flag: str, variable: str) -> None:
    command.add_argument(flag, metavar="FILE", type=Path, help=f"file with the token, instead of {variable}")


def add_fleet(
    command: argparse.ArgumentParser, *, hosts: int, build_s: float, live_migrate_s: float
) -> "argparse._MutuallyExclusiveGroup":
    """Options of simulated hosts; the group of those that say which hosts there are."""
    which = command.add_mutually_exclusive_group()
    which.add_argument(
        "--hosts",
        metavar="N",
        type=whole(1, HOSTS_MAX),
        default=hosts,
        help=f"number of simulated hosts [1 to {HOSTS_MAX}, default {hosts}]",
    )
    which.add_argument("--fleet", metavar="FILE", type=Path, help="TOML file that describes the hosts")
    command.add_argument(
        "--seed", metavar="N", type=whole(0, _SEED_MAX), help="seed of simulated failures, to repeat a run"
    )
    add_seconds(command, "--build-seconds", build_s, 0, 3600, "how long a simulated build takes")
    add_seconds(
        command,
        "--live-migrate-seconds",
        live_migrate_s,
        0,
        3600,
        "how long a simulated live migration takes",
    )
    return which


def add_worker_hung_seconds(command: argparse.ArgumentParser, what: str) -> None:
    command.add_argument(
        "--worker-hung-seconds",
        metavar="S",
        type=whole(5, 3600),
        default=60,
        help=f"{what} without a sign of life for this long is killed and restarted [5 to 3600, default 60]",
    )


def add_heartbeat_timeout(command: argparse.ArgumentParser, default: float) -> None:
    what = "a host is down after this long without a heartbeat of its agent"
    add_seconds(command, "--heartbeat-timeout", default, 0.5, 3600, what)
    command.add_argument(
        "--silence-seconds",
        dest="heartbeat_timeout",
        type=seconds(0.5, 3600),
        action=RenamedOption,
        const="--heartbeat-timeout",
        default=argparse.SUPPRESS,
        help=argparse.SUPPRESS,
    )


class RenamedOption(argparse.Action):
    """The former name of an option (``const`` is the new one). It works for one release, with a warning."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        print(f"berth: {option_string} is deprecated: use {self.const}", file=sys.stderr)
        setattr(namespace, self.dest, values)


def add_logging(command: argparse.ArgumentParser, level: str) -> None:
    for name, default in (("log_level", level), ("log_format", "auto")):
        setting = BY_NAME[name]
        command.add_argument(
            setting.flag, choices=setting.choices, default=default, help=f"{setting.about.help} [{default}]"
        )


def add_trace_endpoint(command: argparse.ArgumentParser) -> None:
    setting = BY_NAME["trace_endpoint"]
    command.add_argument(setting.flag, metavar="URL", type=_trace_endpoint, help=setting.about.help)


def _trace_endpoint(text: str) -> str:
    _refuse_as_setting("trace_endpoint", text)
    return text


def refuse_untraceable(endpoint: str | None) -> None:
    """CommandError if traces are asked for and cannot be sent."""
    obstacle = tracing.find_obstacle(endpoint, os.environ)
    if obstacle is not None:
        raise CommandError(f"--trace-endpoint: {obstacle}")


def add_seconds(
    command: argparse.ArgumentParser, flag: str, default: float, low: float, high: float, what: str
) -> None:
    command.add_argument(
        flag,
        metavar="S",
        type=seconds(low, high),
        default=float(default),
        help=f"{what} [{low:g} to {high:g} seconds, default {default:g}]",
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


def listen_address(text: str) -> str:
    _refuse_as_setting("listen", text)
    return text


def _refuse_as_setting(name: str, text: str) -> None:
    """Refuse what the setting of a name refuses."""
    check = BY_NAME[name].about.check
    assert check is not None
    problem = check(text)
    if problem is not None:
        raise argparse.ArgumentTypeError(f"{redact_password(text)!r} is refused: {problem}")


def url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_good = is_good and not parts.query and not parts.fragment
    except ValueError:
        is_good = False
    if "@" in text:
        # It is shown in messages: it must hold no secret, and this message must not show it either.
        raise argparse.ArgumentTypeError("name and password do not belong into an address")
    if not is_good:
        raise argparse.ArgumentTypeError(f"{text!r} is refused: it must look like http://HOST:PORT")
    return text.rstrip("/")


def object_name(text: str) -> str:
    """The name or id of an object."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is refused: it must be a name or an id")
    return text


def name_in_path(text: str) -> str:
    """The name or id of an object that is asked for by its path. A name that would make it another path is
    refused."""
    if not is_part_of_path(object_name(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is refused: it cannot be part of an address; give the id")
    return text


def is_part_of_path(text: str) -> bool:
    return text not in ("", ".", "..") and "/" not in text


def cell_name(text: str) -> str:
    if not CELL_NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is refused: a name is {CELL_NAME_IS}")
    return text


_BYTES_MAX: Final = 4096


def find_secret(variable: str, file: Path | None) -> str | None:
    """The content of the file if one is named, else of the variable; None if neither is there."""
    if file is None:
        return os.environ.get(variable) or None
    try:
        with file.open("rb") as opened:
            shared = refuse_others(file, opened)
            content = opened.read(_BYTES_MAX + 1)
    except OSError as error:
        raise CommandError(f"{file}: the secret cannot be read: {error.strerror}") from error
    if shared is not None:
        raise CommandError(shared)
    try:
        text = content.decode("ascii").strip()
    except UnicodeDecodeError:
        text = ""
    if not text or len(content) > _BYTES_MAX or not text.isprintable():
        raise CommandError(f"{file}: one line of printable ASCII is expected in it, and nothing else")
    return text


def require_secret(variable: str, file: Path | None, flag: str, what: str) -> str:
    """A secret that must be there."""
    found = find_secret(variable, file)
    if found is None:
        raise CommandError(f"{variable} or {flag} must hold {what}")
    return found


def clean(text: str) -> str:
    """A text in one line, without what a terminal would act on."""
    return text if text.isprintable() else "".join(one if one.isprintable() else " " for one in text)
