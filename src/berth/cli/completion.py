"""``berth completion``: a script that completes commands, options and their values, for bash, zsh or fish.

It is written from the parser, and asks nobody when it completes.
"""

import argparse
import shlex
from collections.abc import Iterator
from typing import Final, NamedTuple

from berth.cli.command import describe
from berth.cli.parser import CommandParser

_FILES: Final = {"FILE": "file", "DIR": "directory"}
_SHELLS: Final = ("bash", "zsh", "fish")


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "bash   berth completion bash > ~/.local/share/bash-completion/completions/berth\n"
        'zsh    berth completion zsh > "${fpath[1]}/_berth"\n'
        "fish   berth completion fish > ~/.config/fish/completions/berth.fish",
    )
    command.add_argument("shell", metavar="SHELL", choices=_SHELLS, help=", ".join(_SHELLS))


def run(arguments: argparse.Namespace) -> int:
    # Imported here: it imports this module by its name.
    from berth.cli.program import make_parser

    print(_WRITERS[arguments.shell](list(walk_commands(make_parser()))), end="")
    return 0


class CompletedCommand(NamedTuple):
    """A command by its words behind ``berth``, such as "cluster create"."""

    path: str
    parser: CommandParser

    @property
    def words(self) -> list[str]:
        """What can follow: actions, choices of arguments, and options."""
        choices = [str(one) for action in self.parser.positionals for one in action.choices or ()]
        flags = [flag for action in self.parser.options for flag in action.option_strings]
        return [*self.parser.actions, *choices, *flags]

    @property
    def step(self) -> str:
        """The command above it, a space, and its last word: how the scripts know that it is the one."""
        above, _, last = self.path.rpartition(" ")
        return f"{above} {last}"

    def values(self) -> Iterator[tuple[str, str, list[str]]]:
        """Options with a value: the flags, what kind of value ("file", "directory", "word"), and the
        choices."""
        for action in self.parser.options:
            if action.nargs != 0:
                kind = _FILES.get(str(action.metavar), "word")
                yield "|".join(action.option_strings), kind, [str(one) for one in action.choices or ()]


def walk_commands(parser: CommandParser, path: str = "") -> Iterator[CompletedCommand]:
    """A parser and all that are below it, with all of their arguments."""
    parser.load()
    yield CompletedCommand(path, parser)
    for name, action in parser.actions.items():
        yield from walk_commands(action, f"{path} {name}".strip())


# -- bash and zsh -------------------------------------------------------------------------------

_BASH: Final = """\
# Completion of berth for bash. Written by 'berth completion bash'.
_berth() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} path="" word
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$path $word" in
{paths}
        esac
    done
    case "$path:$previous" in
{values}
    esac
    case "$path" in
{words}
    esac
}}
complete -F _berth berth
"""

_ZSH: Final = """\
#compdef berth
# Completion of berth for zsh. Written by 'berth completion zsh'.
_berth() {{
    local current=$words[CURRENT] previous=$words[CURRENT-1] path_of_words="" word
    for word in "${{words[@]:1:$((CURRENT-2))}}"; do
        case "$path_of_words $word" in
{paths}
        esac
    done
    case "$path_of_words:$previous" in
{values}
    esac
    case "$path_of_words" in
{words}
    esac
}}
if [ "$funcstack[1]" = _berth ]; then _berth "$@"; else compdef _berth berth; fi
"""


def _write_bash(commands: list[CompletedCommand]) -> str:
    def complete(kind: str, words: list[str]) -> str:
        if kind == "word":
            return f'COMPREPLY=($(compgen -W {shlex.quote(" ".join(words))} -- "$current"))'
        return f'COMPREPLY=($(compgen {"-d" if kind == "directory" else "-f"} -- "$current"))'

    return _BASH.format(
        paths=_indent(f'"{one.step}") path="{one.path}" ;;' for one in commands if one.path),
        values=_indent(
            f"{_match(one.path, flags)}) {complete(kind, choices)}; return ;;"
            for one in commands
            for flags, kind, choices in one.values()
        ),
        words=_indent(f'"{one.path}") {complete("word", one.words)} ;;' for one in commands),
    )


def _write_zsh(commands: list[CompletedCommand]) -> str:
    def complete(kind: str, words: list[str]) -> str:
        if kind == "word":
            return f"compadd -- {' '.join(map(shlex.quote, words))}" if words else ":"
        return "_files -/" if kind == "directory" else "_files"

    return _ZSH.format(
        paths=_indent(f'"{one.step}") path_of_words="{one.path}" ;;' for one in commands if one.path),
        values=_indent(
            f"{_match(one.path, flags)}) {complete(kind, choices)}; return ;;"
            for one in commands
            for flags, kind, choices in one.values()
        ),
        words=_indent(f'"{one.path}") {complete("word", one.words)} ;;' for one in commands),
    )


def _match(path: str, flags: str) -> str:
    return "|".join(f'"{path}:{flag}"' for flag in flags.split("|"))


def _indent(lines: Iterator[str]) -> str:
    return "\n".join(f"        {line}" for line in lines)


# -- fish ---------------------------------------------------------------------------------------


_FISH: Final = """\
# Completion of berth for fish. Written by 'berth completion fish'.
function __berth_path
    set -l path
    for word in (commandline -opc)[2..-1]
        switch "$path $word"
{paths}
        end
    end
    test "$path" = "$argv"
end
complete -c berth -f
{completions}
"""


def _write_fish(commands: list[CompletedCommand]) -> str:
    return _FISH.format(
        paths=_indent(f"    case '{one.step}'; set path '{one.path}'" for one in commands if one.path),
        completions="\n".join(line for one in commands for line in _complete_in_fish(one)),
    )


def _complete_in_fish(command: CompletedCommand) -> Iterator[str]:
    start = f"complete -c berth -n '__berth_path {command.path}'"
    parser = command.parser
    for name, summary in parser.summaries.items():
        yield f"{start} -a {name} -d {shlex.quote(summary)}"
    for action in parser.positionals:
        if action.choices:
            yield f"{start} -a {shlex.quote(' '.join(map(str, action.choices)))}"
    for action in parser.options:
        yield f"{start} {_fish_option(parser, action)}"


def _fish_option(parser: CommandParser, action: argparse.Action) -> str:
    flags = " ".join(
        f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in action.option_strings
    )
    words = [flags, f"-d {shlex.quote(parser.explain(action))}"]
    if action.nargs != 0:
        words.append("-x" if action.metavar not in _FILES else "-rF")
        if action.choices:
            words.append(f"-a {shlex.quote(' '.join(map(str, action.choices)))}")
    return " ".join(words)


_WRITERS: Final = {"bash": _write_bash, "zsh": _write_zsh, "fish": _write_fish}
