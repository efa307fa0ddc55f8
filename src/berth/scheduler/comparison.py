"""What a flavor requires of the metadata of an aggregate: a value, or a comparison with one.

| written | met by a value that |
| --- | --- |
| ``text`` | is this text |
| ``s== a``, ``s!=``, ``s<``, ``s<=``, ``s>``, ``s>=`` | compares so with ``a``, as text |
| ``= 5``, ``>= 5``, ``<= 5``, ``== 5``, ``!= 5`` | compares so with 5, as a number (``=`` is ``>=``) |
| ``<in> a`` | has ``a`` in it |
| ``<all-in> a b`` | has ``a`` and ``b`` in it |
| ``<or> a <or> b`` | is ``a`` or ``b`` |

The words are those of Nova's filters. Where Nova would fail on text that is not a number, or ignore words, a
comparison is refused; a value that is not a number meets no comparison of numbers.
"""

import math
import operator
from collections.abc import Callable
from typing import Final

_NUMBERS: Final[dict[str, Callable[[float, float], bool]]] = {
    "=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
}
_TEXTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "s==": operator.eq,
    "s!=": operator.ne,
    "s<": operator.lt,
    "s<=": operator.le,
    "s>": operator.gt,
    "s>=": operator.ge,
    "<in>": operator.contains,
}
_OR: Final = "<or>"
_ALL_IN: Final = "<all-in>"


def wrong_comparison(wanted: str) -> str | None:
    """What is wrong with a comparison, in words."""
    operation, *operands = wanted.split() or [""]
    if operation in _NUMBERS and (len(operands) != 1 or _number(operands[0]) is None):
        return f"one number after {operation}"
    if operation in _TEXTS and len(operands) != 1:
        return f"one word after {operation}"
    if operation == _ALL_IN and not operands:
        return f"words after {_ALL_IN}"
    if operation == _OR and (len(operands) % 2 == 0 or any(word != _OR for word in operands[1::2])):
        return f"words with {_OR} before each"
    return None


def is_met(wanted: str, value: str) -> bool:
    """Whether a value of an aggregate is what is wanted."""
    operation, *operands = wanted.split() or [""]
    if operation not in _NUMBERS and operation not in _TEXTS and operation not in (_OR, _ALL_IN):
        return value == wanted
    if wrong_comparison(wanted) is not None:
        return False
    if operation in _NUMBERS:
        number, limit = _number(value), _number(operands[0])
        return number is not None and limit is not None and _NUMBERS[operation](number, limit)
    if operation in _TEXTS:
        return _TEXTS[operation](value, operands[0])
    if operation == _ALL_IN:
        return all(word in value for word in operands)
    return value in operands[::2]


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
