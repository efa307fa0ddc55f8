"""The one reader of a machine's ``sys`` and ``proc``, or of a copy of them: bounded, and suspicious.

Always holds: no link is followed out of the tree, and no more than a few in a row; nothing but regular files
is opened, so that no fifo blocks and no device node notices; nothing is written and no command is run. A
file, a folder and the whole reading have limits.

What is missing is None: kernels differ in what they have. What is there and cannot be used raises
``Unusable``, and whoever reads decides how much that spoils: the value, or the device that it belongs to. It
is then left out, by name and with a reason, and never replaced by a guess. When the budget of the whole
reading is spent, ``BudgetSpent`` ends it; what was read until then stays.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from berth.runtime.clock import Clock, SystemClock

FILE_BYTES_MAX: Final = 64 << 10
"""Of a file of sysfs: most have a page at most, lists of cpus a little more."""
ENTRIES_MAX: Final = 20_000
"""Of a folder. One that has more is left out whole: which part of it is read would be a matter of chance."""
LEFT_OUT_MAX: Final = 1_000
LIKE_THIS_MAX: Final = 50
"""Of things left out whose paths differ in numbers alone. A thousand bad devices must not hide a bad cell."""
_LINKS_MAX: Final = 40
_CHUNK_BYTES: Final = 64 << 10
_TEXT_LENGTH_MAX: Final = 300
_NO_VALUE: Final = (errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.EOPNOTSUPP)
"""The file is missing, or it is there and the kernel has no value for it: the speed without a cable."""
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC

ID_MAX: Final = 65_535
"""The greatest number of a cpu or a cell."""

_NUMBERS: Final = re.compile(r"[0-9a-f]*[0-9][0-9a-f]*")
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_HEX: Final = re.compile(r"0x[0-9a-fA-F]{1,8}")
_RANGE: Final = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_MASK: Final = re.compile(r"[0-9a-fA-F]{1,8}(,[0-9a-fA-F]{1,8})*")
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+@-]{0,63}")

T = TypeVar("T")


class LeftOut(NamedTuple):
    """Something that was not used, and why. ``path`` is relative to the root folder."""

    path: str
    reason: str


class Unusable(Exception):
    """Something in the tree is there, but cannot be used."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason


class BudgetSpent(Exception):
    """The whole reading has reached one of its limits."""


class Budget(NamedTuple):
    """Limits of the whole reading."""

    entries: int = 500_000
    """Files opened and names listed."""
    bytes: int = 64 << 20
    ids: int = 500_000
    """Numbers of cpus and cells in lists and masks: a short list such as 0-65535 has many."""
    seconds: float = 3.0


class Sysroot:
    """``root`` is the parent of ``sys`` and ``proc``."""

    def __init__(self, root: Path, budget: Budget | None = None, clock: Clock | None = None) -> None:
        self._root = os.path.realpath(root)
        self._budget = budget or Budget()
        self._clock = clock or SystemClock()
        self._deadline_ns = self._clock.monotonic_ns() + int(self._budget.seconds * 1e9)
        self._entries = 0
        self._bytes = 0
        self._ids = 0
        self._left_out: dict[LeftOut, None] = {}
        self._alike: dict[str, int] = {}
        self._untold: dict[str, int] = {}
        self.cut_short: str | None = None
        """Which limit was reached, and where; None if none was."""

    @property
    def is_spent(self) -> bool:
        return self.cut_short is not None

    @property
    def is_live(self) -> bool:
        """Whether this is the machine that we run on."""
        return self._root == "/"

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        more = (
            LeftOut(path, f"left out besides: {number} like this") for path, number in self._untold.items()
        )
        return (*self._left_out, *more)

    def leave_out(self, path: str, reason: str) -> None:
        left = LeftOut(clean(path), clean(reason))
        if left in self._left_out:
            return
        alike = _NUMBERS.sub("*", left.path)
        self._alike[alike] = self._alike.get(alike, 0) + 1
        if self._alike[alike] <= LIKE_THIS_MAX and len(self._left_out) < LEFT_OUT_MAX:
            self._left_out[left] = None
        else:
            key = alike if len(self._untold) < LEFT_OUT_MAX else "..."
            self._untold[key] = self._untold.get(key, 0) + 1

    def attempt(self, read: Callable[[], T]) -> T | None:
        """What ``read`` returns; None if it is not usable, which is then said."""
        try:
            return read()
        except Unusable as error:
            self.leave_out(error.path, error.reason)
            return None

    def collect(self, items: Iterator[T]) -> list[T]:
        """All items; of those behind the end of the budget, none."""
        found = []
        try:
            for item in items:
                found.append(item)
        except BudgetSpent:
            pass
        return found

    def folder(self, path: str) -> "SysFolder | None":
        """A folder of the tree; None if it is missing."""
        return SysFolder(self, "", self._root).folder(path)

    def entries(self, path: str) -> Iterator[tuple["SysFolder", str]]:
        """A folder with each of its names; nothing if it is missing, or not usable, which is then said."""
        folder = self.attempt(lambda: self.folder(path))
        if folder is not None:
            for name in self.attempt(folder.names) or ():
                yield folder, name

    # -- for folders -----------------------------------------------------------------------------

    def spend(self, path: str, *, entries: int = 0, bytes: int = 0, ids: int = 0) -> None:
        self._entries += entries
        self._bytes += bytes
        self._ids += ids
        if self._entries > self._budget.entries:
            self._end(path, f"{self._budget.entries} files and folders were read")
        if self._bytes > self._budget.bytes:
            self._end(path, f"{self._budget.bytes} bytes were read")
        if self._ids > self._budget.ids:
            self._end(path, f"{self._budget.ids} numbers of cpus and cells were read")
        if self._clock.monotonic_ns() > self._deadline_ns:
            self._end(path, f"{self._budget.seconds:g} s have passed")

    def _end(self, path: str, limit: str) -> None:
        if self.cut_short is None:
            self.cut_short = clean(f"{limit} before {path}")
            self.leave_out(path, f"{limit}: this and all that was not read yet is left out")
        raise BudgetSpent

    def resolve(self, folder: str, name: str, path: str) -> str | None:
        """The real path of something below a real folder, links followed inside the tree; None if it is
        missing. The kernel would follow links out of the tree, so each is looked at here."""
        at = folder
        steps = [step for step in reversed(name.split("/")) if step not in ("", ".")]
        links = 0
        while steps:
            step = steps.pop()
            if step == "..":
                if at == self._root:
                    raise Unusable(path, "the link leads out of the tree")
                at = os.path.dirname(at)
                continue
            following = os.path.join(at, step)
            try:
                mode = os.lstat(following).st_mode
            except (FileNotFoundError, NotADirectoryError):
                return None
            except (OSError, ValueError) as error:
                raise Unusable(path, _describe(error)) from None
            if not stat.S_ISLNK(mode):
                at = following
                continue
            links += 1
            self.spend(path, entries=1)
            if links > _LINKS_MAX:
                raise Unusable(path, f"more than {_LINKS_MAX} links follow each other")
            target = _read_link(following, path)
            if target.startswith("/"):
                if not self.is_live:
                    raise Unusable(path, "the link leads out of the tree")
                at = self._root
            steps += [step for step in reversed(target.split("/")) if step not in ("", ".")]
        return at


class SysFolder:
    """A folder of the tree. ``path`` is how it was reached, ``real`` where it is."""

    __slots__ = ("_sysroot", "path", "real")

    def __init__(self, sysroot: Sysroot, path: str, real: str) -> None:
        self._sysroot = sysroot
        self.path = path
        self.real = real

    def join(self, name: str) -> str:
        return f"{self.path}/{name}" if self.path else name

    def folder(self, name: str) -> "SysFolder | None":
        """A folder below this one, or the one that a link leads to; None if it is missing."""
        path = self.join(name)
        real = self._sysroot.resolve(self.real, name, path)
        if real is None:
            return None
        try:
            is_folder = stat.S_ISDIR(os.lstat(real).st_mode)
        except OSError as error:
            raise Unusable(path, _describe(error)) from None
        if not is_folder:
            raise Unusable(path, "this is not a folder")
        return SysFolder(self._sysroot, path, real)

    def names(self) -> list[str]:
        """What is in it, in order."""
        found: list[str] = []
        try:
            with os.scandir(self.real) as entries:
                for entry in entries:
                    found.append(entry.name)
                    if len(found) > ENTRIES_MAX:
                        raise Unusable(self.path, f"the folder has more than {ENTRIES_MAX} entries")
        except OSError as error:
            raise Unusable(self.path, _describe(error)) from None
        finally:
            self._sysroot.spend(self.path, entries=len(found))
        return sorted(found)

    def link(self, name: str) -> str | None:
        """The last part of what a link points to; None if it is missing. The link is not followed."""
        try:
            target = _read_link(os.path.join(self.real, name), self.join(name))
        except FileNotFoundError:
            return None
        self._sysroot.spend(self.join(name), entries=1)
        return target.rstrip("/").rpartition("/")[2]

    def read(self, name: str, bytes_max: int = FILE_BYTES_MAX) -> str | None:
        """The text of a file; None if it is missing."""
        path = self.join(name)
        where = os.path.join(self.real, name)
        try:
            if not stat.S_ISREG(os.lstat(where).st_mode):
                raise Unusable(path, "this is not a regular file")
            content = _read_file(where, path, bytes_max)
        except (OSError, ValueError) as error:
            if getattr(error, "errno", None) in _NO_VALUE:
                return None
            raise Unusable(path, _describe(error)) from None
        self._sysroot.spend(path, entries=1, bytes=len(content))
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise Unusable(path, "this is not text") from None

    def number(self, name: str, low: int, high: int) -> int | None:
        """A whole number; None if the file is missing."""
        text = self.read(name)
        return None if text is None else read_number(text, low, high, self.join(name))

    def hex(self, name: str, high: int) -> int | None:
        """A number such as 0x8086; None if the file is missing."""
        text = self.read(name)
        if text is None:
            return None
        if _HEX.fullmatch(text.strip()) is None or int(text, 16) > high:
            raise Unusable(self.join(name), f"{shorten(text)} is not a number from 0x0 to {high:#x}")
        return int(text, 16)

    def ids(self, name: str, count_max: int = ID_MAX + 1) -> frozenset[int] | None:
        """Numbers of cpus or cells, such as 0-3,8; None if the file is missing."""
        text = self.read(name)
        if text is None:
            return None
        ranges = _read_ranges(text)
        if ranges is None:
            raise Unusable(self.join(name), f"{shorten(text)} is not a list of numbers up to {ID_MAX}")
        self._spend_ids(name, sum(map(len, ranges)), count_max)
        return frozenset(chain.from_iterable(ranges))

    def mask(self, name: str, count_max: int = ID_MAX + 1) -> frozenset[int] | None:
        """The numbers of the bits that are set in a mask such as 00000000,0000000f; None if the file is
        missing."""
        text = self.read(name)
        if text is None:
            return None
        text = text.strip()
        if _MASK.fullmatch(text) is None or len(text) > (ID_MAX + 1) // 32 * 9:
            raise Unusable(self.join(name), f"{shorten(text)} is not a mask of up to {ID_MAX + 1} bits")
        words = text.split(",")
        bits = int(words[0] + "".join(word.zfill(8) for word in words[1:]), 16)
        self._spend_ids(name, bits.bit_count(), count_max)
        return frozenset(bit for bit, digit in enumerate(reversed(bin(bits)[2:])) if digit == "1")

    def _spend_ids(self, name: str, count: int, count_max: int) -> None:
        """Before they are made: a few bytes can name many."""
        path = self.join(name)
        if count > count_max:
            raise Unusable(path, f"{count} numbers are more than {count_max}")
        self._sysroot.spend(path, ids=count)

    def word(self, name: str) -> str | None:
        """A name without spaces; None if the file is missing."""
        text = self.read(name)
        if text is None:
            return None
        if not is_word(text.strip()):
            raise Unusable(self.join(name), f"{shorten(text)} is not a name")
        return text.strip()


def read_ids(text: str) -> frozenset[int] | None:
    """The numbers of a list such as 0-3,8, each once; None if it is not one."""
    ranges = _read_ranges(text)
    return None if ranges is None else frozenset(chain.from_iterable(ranges))


def _read_ranges(text: str) -> list[range] | None:
    text = text.strip()
    if not text:
        return []
    ranges = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last <= ID_MAX:
            return None
        ranges.append(range(first, last + 1))
    ranges.sort(key=lambda one: one.start)
    return None if any(after.start < before.stop for before, after in pairwise(ranges)) else ranges


def format_ids(ids: frozenset[int]) -> str:
    """Numbers as a list such as 0-3,8."""
    runs: list[list[int]] = []
    for id in sorted(ids):
        if runs and runs[-1][1] == id - 1:
            runs[-1][1] = id
        else:
            runs.append([id, id])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def read_number(text: str, low: int, high: int, path: str) -> int:
    text = text.strip()
    if _WHOLE.fullmatch(text) is None or not low <= int(text) <= high:
        raise Unusable(path, f"{shorten(text)} is not a whole number from {low} to {high}")
    return int(text)


def is_word(text: str) -> bool:
    return _WORD.fullmatch(text) is not None


def clean(text: str) -> str:
    """A text of somebody else's that can be printed: one line, without control characters, not long."""
    if len(text) > _TEXT_LENGTH_MAX:
        text = f"{text[: _TEXT_LENGTH_MAX - 3]}..."
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text)


def shorten(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def _read_link(where: str, path: str) -> str:
    try:
        return os.readlink(where)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unusable(
            path, "this is not a link" if error.errno == errno.EINVAL else _describe(error)
        ) from None


def _read_file(where: str, path: str, bytes_max: int) -> bytes:
    handle = os.open(where, _FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise Unusable(path, "this is not a regular file")
        content = bytearray()
        while len(content) <= bytes_max:
            part = os.read(handle, _CHUNK_BYTES)
            if not part:
                return bytes(content)
            content += part
    finally:
        os.close(handle)
    raise Unusable(path, f"the file has more than {bytes_max} bytes")


def _describe(error: Exception) -> str:
    return f"it cannot be read: {getattr(error, 'strerror', None) or error}"
