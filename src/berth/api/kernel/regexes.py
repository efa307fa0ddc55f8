"""Regular expressions of callers, matched in time that grows with the text alone.

Python's own would try one way after the other: a few characters of a pattern can make it try for ever. Here
all ways are followed at once (Thompson's construction): of a program of P instructions, each character of the
text costs P steps at most, and hardly any once the same set of instructions has been seen before. There is
nothing in the language that this could not match: no groups to refer back to, no looking ahead.

    a . [a-z] [^0-9] \\d \\w \\s \\.    ( ) |    * + ? {2} {2,} {2,5}    ^ $
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

PATTERN_MAX: Final = 255
PROGRAM_MAX: Final = 400
_DEPTH_MAX: Final = 20
_SEEN_MAX: Final = 2_000
_CLASSES: Final = {"d": "0-9", "w": "A-Za-z0-9_", "s": " \\t\\n\\r\\f\\v"}
_REPEAT: Final = re.compile(r"\{(\d{1,3})(,?)(\d{0,3})\}")

Takes = Callable[[str], bool]


class RegexError(Exception):
    """The text is not a regular expression, or not one that is understood. The message says why."""


class _Instruction(NamedTuple):
    """``takes`` a character and goes on; or goes on at all of ``ways`` without one, where ``at`` allows it:
    at the start or the end of the text only, or anywhere."""

    takes: Takes | None = None
    ways: tuple[int, ...] = ()
    at: str = ""


_States = frozenset[int]


class Regex:
    """A regular expression that is looked for anywhere in a text."""

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_MAX:
            raise RegexError(f"it has {len(text)} characters; {PATTERN_MAX} are allowed")
        self._program = _Parser(text).parse()
        self._end = len(self._program)
        self._seen: dict[tuple[_States, str], _States] = {}

    def matches(self, text: str, take: Callable[[int], None] = lambda count: None) -> bool:
        """Whether the text has a part that matches. ``take`` is told of steps before they are taken."""
        take(len(text) + 1)
        states = self._close({0}, is_start=True, is_end=not text)
        for place, character in enumerate(text):
            if self._end in states:
                return True
            is_last = place == len(text) - 1
            found = None if is_last else self._seen.get((states, character))
            if found is None:
                take(len(self._program))
                taken = {
                    state + 1
                    for state in states
                    if (takes := self._program[state].takes) is not None and takes(character)
                }
                # The pattern may begin anywhere.
                found = self._close({0, *taken}, is_start=False, is_end=is_last)
                if not is_last and len(self._seen) < _SEEN_MAX:
                    self._seen[states, character] = found
            states = found
        return self._end in states

    def _close(self, begun: set[int], *, is_start: bool, is_end: bool) -> _States:
        """All instructions that are reached without a character."""
        found: set[int] = set()
        left = list(begun)
        while left:
            state = left.pop()
            if state in found:
                continue
            found.add(state)
            if state == self._end:
                continue
            instruction = self._program[state]
            if instruction.takes is not None:
                continue
            if (instruction.at == "start" and not is_start) or (instruction.at == "end" and not is_end):
                continue
            left += [state + way for way in instruction.ways]
        return frozenset(found)


class _Parser:
    """alternatives = sequence ("|" sequence)*; sequence = (atom repeat?)*"""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> tuple[_Instruction, ...]:
        program = self._parse_alternatives()
        if self._at < len(self._text):
            raise RegexError("it has a ) without a (")
        return tuple(program)

    @property
    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _parse_alternatives(self) -> list[_Instruction]:
        program = self._parse_sequence()
        while self._next == "|":
            self._at += 1
            other = self._parse_sequence()
            program = [
                _Instruction(ways=(1, len(program) + 2)),
                *program,
                _Instruction(ways=(len(other) + 1,)),
                *other,
            ]
        return program

    def _parse_sequence(self) -> list[_Instruction]:
        program: list[_Instruction] = []
        while self._next not in ("", "|", ")"):
            program += self._parse_repeat(self._parse_atom())
            if len(program) > PROGRAM_MAX:
                raise RegexError("it is too large: repeat less")
        return program

    def _parse_atom(self) -> list[_Instruction]:
        character = self._next
        self._at += 1
        match character:
            case "(":
                return self._parse_group()
            case "[":
                return [_Instruction(takes=self._parse_set())]
            case ".":
                return [_Instruction(takes=lambda one: True)]
            case "^":
                return [_Instruction(ways=(1,), at="start")]
            case "$":
                return [_Instruction(ways=(1,), at="end")]
            case "\\":
                return [_Instruction(takes=self._parse_escape())]
            case "*" | "+" | "?" | "{":
                raise RegexError(f"it has a {character} that repeats nothing")
        return [_Instruction(takes=lambda one: one == character)]

    def _parse_group(self) -> list[_Instruction]:
        if self._next == "?":
            raise RegexError("it has (?, which is not supported")
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise RegexError(f"it has more than {_DEPTH_MAX} groups within each other")
        program = self._parse_alternatives()
        if self._next != ")":
            raise RegexError("it has a ( without a )")
        self._at += 1
        self._depth -= 1
        return program

    def _parse_escape(self) -> Takes:
        character = self._next
        self._at += 1
        if not character:
            raise RegexError("it ends with a backslash")
        if character.lower() in _CLASSES:
            negation = "^" if character.isupper() else ""
            return _make_set(f"[{negation}{_CLASSES[character.lower()]}]")
        if character.isalnum():
            raise RegexError(f"it has \\{character}, which is not supported")
        return lambda one: one == character

    def _parse_set(self) -> Takes:
        """[...]: Python reads it, which takes one character and cannot try twice."""
        begin = self._at - 1
        end = self._at + (self._next == "^")
        # A ] that comes first is one of the set.
        end += self._text[end : end + 1] == "]"
        while self._text[end : end + 1] not in ("", "]"):
            end += 2 if self._text[end] == "\\" else 1
        if self._text[end : end + 1] != "]":
            raise RegexError("it has a [ without a ]")
        self._at = end + 1
        return _make_set(self._text[begin : end + 1].replace("[[", "[\\["))

    def _parse_repeat(self, atom: list[_Instruction]) -> list[_Instruction]:
        match self._next:
            case "*":
                self._at += 1
                return _repeat_any(atom)
            case "+":
                self._at += 1
                return [*atom, *_repeat_any(atom)]
            case "?":
                self._at += 1
                return _make_optional(atom)
            case "{":
                return self._parse_count(atom)
        return atom

    def _parse_count(self, atom: list[_Instruction]) -> list[_Instruction]:
        found = _REPEAT.match(self._text, self._at)
        if found is None:
            raise RegexError("it has a { that is not followed by a count, as in {2} or {2,5}")
        self._at = found.end()
        least = int(found[1])
        most = int(found[3]) if found[3] else None if found[2] else least
        if most is not None and most < least:
            raise RegexError(f"it has {found[0]}, which ends before it begins")
        if len(atom) * max(least, most or 0) > PROGRAM_MAX:
            raise RegexError("it is too large: repeat less")
        if most is None:
            return [*(atom * least), *_repeat_any(atom)]
        program: list[_Instruction] = []
        for _ in range(most - least):
            program = _make_optional([*atom, *program])
        return [*(atom * least), *program]


def _repeat_any(atom: list[_Instruction]) -> list[_Instruction]:
    return [_Instruction(ways=(1, len(atom) + 2)), *atom, _Instruction(ways=(-len(atom) - 1,))]


def _make_optional(atom: list[_Instruction]) -> list[_Instruction]:
    return [_Instruction(ways=(1, len(atom) + 1)), *atom]


def _make_set(text: str) -> Takes:
    try:
        compiled = re.compile(text)
    except re.error as error:
        raise RegexError(f"{text} is not a set of characters: {error}") from None
    return lambda one: compiled.fullmatch(one) is not None
