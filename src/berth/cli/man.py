"""``berth man``: the manual page of a command, or all of them in a folder, written from the parser."""

import argparse
from pathlib import Path
from typing import Final

from berth import __version__
from berth.cli.command import CommandError, describe
from berth.cli.completion import CompletedCommand, walk_commands

_STATUS: Final = (
    ("0", "well"),
    ("1", "not well: something that was looked at is wrong, or something that was waited for did not happen"),
    ("2", "refused or unreachable: one message on standard error says why"),
    ("130", "interrupted (Ctrl-C)"),
)
_VARIABLES: Final = (
    ("OS_CLOUD, OS_CLIENT_CONFIG_FILE, OS_*", "a cloud and a user, as for other OpenStack clients"),
    ("BERTH_TOKEN, BERTH_URL", "a token, and the address of the region"),
    ("BERTH_*", "settings of the commands that serve: see 'berth settings'"),
    ("NO_COLOR", "if set, nothing is coloured"),
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "berth man hosts | man -l -\n"
        "berth man --output ~/.local/share/man/man1    all pages; then: man berth-hosts",
    )
    command.add_argument(
        "name", metavar="COMMAND", nargs="*", help="words of the command, such as hosts or cluster create"
    )
    command.add_argument("--output", metavar="DIR", type=Path, help="folder for the pages of all commands")


def run(arguments: argparse.Namespace) -> int:
    # Imported here: it imports this module by its name.
    from berth.cli.program import make_parser

    commands = {one.path: one for one in walk_commands(make_parser())}
    if arguments.output is not None:
        return _write_all(list(commands.values()), arguments.output)
    path = " ".join(arguments.name)
    if path not in commands:
        raise CommandError(f"there is no command {path}; 'berth --help' lists all")
    print(write_page(commands[path]), end="")
    return 0


def _write_all(commands: list[CompletedCommand], folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in commands:
            (folder / f"{_name_page(one.path)}.1").write_text(write_page(one))
    except OSError as error:
        raise CommandError(f"{folder}: the pages cannot be written: {error.strerror}") from error
    print(f"{len(commands)} pages are in {folder}")
    return 0


def write_page(command: CompletedCommand) -> str:
    """A page in the language of man(7)."""
    parser = command.parser
    summary, _, more = (parser.description or "").partition("\n")
    name = _name_page(command.path)
    lines = [
        f'.TH {_quote(name.upper())} 1 "" {_quote(f"Berth {__version__}")} "Berth"',
        ".SH NAME",
        f"{_escape(name)} \\- {_escape(summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        *_write_verbatim(parser.format_usage().removeprefix("usage: ").rstrip()),
    ]
    if more.strip():
        lines += [".SH DESCRIPTION", *_write_verbatim(more.strip("\n"))]
    lines += _write_list("COMMANDS", list(parser.summaries.items()))
    for heading, arguments in (("ARGUMENTS", parser.positionals), ("OPTIONS", parser.options)):
        lines += _write_list(heading, [(_name_argument(one), parser.explain(one)) for one in arguments])
    if parser.epilog:
        lines += [".SH EXAMPLES", *_write_verbatim(parser.epilog.removeprefix("examples:\n").rstrip())]
    lines += _write_list("EXIT STATUS", list(_STATUS))
    lines += _write_list("ENVIRONMENT", list(_VARIABLES))
    below = [f"{_name_page(f'{command.path} {one}'.strip())}(1)" for one in parser.actions]
    above = [] if not command.path else [f"{_name_page(command.path.rpartition(' ')[0])}(1)"]
    lines += [".SH SEE ALSO", _escape(", ".join([*above, *below]))]
    return "\n".join(lines) + "\n"


def _write_list(heading: str, entries: list[tuple[str, str]]) -> list[str]:
    if not entries:
        return []
    lines = [f".SH {heading}"]
    for name, text in entries:
        lines += [".TP", f".B {_escape(name)}", _escape(text)]
    return lines


def _write_verbatim(text: str) -> list[str]:
    return [".nf", *(_escape(line) for line in text.split("\n")), ".fi"]


def _name_page(path: str) -> str:
    return "-".join(["berth", *path.split()])


def _name_argument(action: argparse.Action) -> str:
    value = str(action.metavar or "|".join(map(str, action.choices or [action.dest])))
    if not action.option_strings:
        return value
    return ", ".join(action.option_strings) + ("" if action.nargs == 0 else f" {value}")


def _escape(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{escaped}" if escaped.startswith((".", "\\(aq")) else escaped


def _quote(text: str) -> str:
    return '"' + text.replace('"', "") + '"'
