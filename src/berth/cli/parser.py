"""The parser of every command: argparse, with mistakes named where they were made, and suggestions.

A parser that is given an option or argument that it does not have refuses it itself, with its own usage:
argparse would leave that to the parser above it. A command that needs an action and gets nothing at all shows
its help.
"""

import argparse
import difflib
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from berth.cli import import_uninterrupted

_FORMATTER: Final = argparse.RawDescriptionHelpFormatter
_SHOWN_MAX: Final = 12
_UNDECODABLE: Final = re.compile("[\udc80-\udcff]")


class CommandParser(argparse.ArgumentParser):
    """The parser of a command or an action. One with a ``module`` gets its arguments from there when they
    are needed: only the module of the command that was given is imported."""

    module: str | None = None

    def __init__(
        self, prog: str | None = None, *, description: str | None = None, epilog: str | None = None
    ) -> None:
        super().__init__(
            prog, description=description, epilog=epilog, formatter_class=_FORMATTER, allow_abbrev=False
        )

    def load(self) -> None:
        """Have all arguments of this command."""
        if self.module is not None:
            command = import_uninterrupted(f"berth.cli.{self.module}")
            self.module = None
            command.add_arguments(self)
            self.set_defaults(run=command.run)

    @property
    def actions(self) -> dict[str, "CommandParser"]:
        """The commands or actions below this one."""
        subparsers = self._find_subparsers()
        return {} if subparsers is None else dict(subparsers.choices)

    @property
    def summaries(self) -> dict[str, str]:
        """What each of the commands or actions below this one does, in a line."""
        subparsers = self._find_subparsers()
        shown = () if subparsers is None else subparsers._choices_actions
        return {one.dest: one.help or "" for one in shown}

    @property
    def options(self) -> list[argparse.Action]:
        """The options that help shows."""
        return [one for one in self._actions if one.option_strings and one.help != argparse.SUPPRESS]

    @property
    def positionals(self) -> list[argparse.Action]:
        return [one for one in self._actions if not one.option_strings and not _is_subparsers(one)]

    def explain(self, action: argparse.Action) -> str:
        """The help of an argument, as it is shown."""
        return self._get_formatter()._expand_help(action) if action.help else ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.load()
        given = list(sys.argv[1:] if args is None else args)
        subparsers = self._find_subparsers()
        if subparsers is not None:
            if not given and subparsers.required:
                self.print_help()
                self.exit(0)
            self._refuse_options_before_action(given)
        found, left = super().parse_known_args(given, namespace)
        if left:
            self._refuse_unknown(left[0])
        for value in vars(found).values():
            self._refuse_undecodable(value)
        return found, left

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: {message}\n")

    # -- mistakes -------------------------------------------------------------------------------

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        if _is_subparsers(action):
            what = "action" if " " in self.prog else "command"
            hint = suggest(value, choices) or f"; '{self.prog} --help' lists all"
            self.error(f"there is no {what} {value!r}{hint}")
        name = "/".join(action.option_strings) or action.metavar or action.dest
        hint = suggest(str(value), choices) or f"; there are {', '.join(choices[:_SHOWN_MAX])}"
        self.error(f"{name}: there is no {value!r}{hint}")

    def _refuse_options_before_action(self, given: Sequence[str]) -> None:
        """An unknown option before the command: argparse would take its value for the command."""
        first = given[0] if given else ""
        if first.startswith("--") and first != "--" and not self._has_option(first):
            self._refuse_unknown(first)

    def _refuse_unknown(self, word: str) -> NoReturn:
        if not word.startswith("-"):
            self.error(f"unexpected argument {word!r}")
        option = word.partition("=")[0]
        hint = suggest(option, [name for one in self.options for name in one.option_strings])
        if not hint and " " not in self.prog:
            hint = f"; options of a command stand behind it: {self.prog} COMMAND {option}"
        self.error(f"there is no option {option}{hint}")

    def _refuse_undecodable(self, value: object) -> None:
        """A word that was not UTF-8 when it was typed. Files may have such names; nothing else has."""
        for word in value if isinstance(value, list) else [value]:
            if isinstance(word, str) and not word.isascii() and _UNDECODABLE.search(word):
                self.error(f"{word!a} is not UTF-8")

    def _has_option(self, word: str) -> bool:
        return word.partition("=")[0] in self._option_string_actions

    def _find_subparsers(self) -> "argparse._SubParsersAction[CommandParser] | None":
        return next((one for one in self._actions if isinstance(one, argparse._SubParsersAction)), None)


def suggest(given: str, known: Iterable[str]) -> str:
    """What may have been meant, as the end of a sentence; nothing if nothing is close."""
    close = difflib.get_close_matches(given, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _is_subparsers(action: argparse.Action) -> bool:
    return isinstance(action, argparse._SubParsersAction)
