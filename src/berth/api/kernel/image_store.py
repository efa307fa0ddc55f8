"""Where the contents of images are kept: one file for each in a folder, which several servers may share.

A file has the name of one upload, which the record of its image holds too. The record says whether a file is
an image's: the folder alone says nothing.

    made and locked --(record: saving)--> written --(synced; record: active)--> unlocked, never changed again
        any of these --(failed; record: queued)--> removed         (record deleted)--> removed

Whoever uploads holds the lock of the file, and the kernel gives it up with the process. So a file that is no
image's and whose lock can be had is left over from a crash. (On NFS locks are the server's, of version 4 or
with lockd.) The folder and its files are for the owner alone.

All file operations run in a few threads, never in the event loop, and each is waited for so long at most. See
docs/decisions/042-images-are-files.md.
"""

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import os
import re
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

T = TypeVar("T")

HEAD_BYTES: Final = 64 << 10
"""How much of the beginning of a content is kept for whoever looks at its format."""

_THREADS: Final = 4
_WITHIN_S: Final = 60.0
"""How long one file operation is waited for. A disk that takes longer is broken."""
_TRANSFERS_MAX: Final = 64
_TRANSFERS_OF_PROJECT_MAX: Final = 16
_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_NAME: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class TooManyTransfers(Exception):
    """The message says whose, and how many there are."""


class Transfers:
    """Uploads and downloads under way in this process, counted: each has a file open, and slow ones of one
    project must leave room for those of others."""

    def __init__(self) -> None:
        self._of_project: Counter[str] = Counter()

    def begin(self, project: str) -> Callable[[], None]:
        """Count one more; call what is returned at its end. TooManyTransfers if it is one too many."""
        if self._of_project.total() >= _TRANSFERS_MAX:
            raise TooManyTransfers(f"{_TRANSFERS_MAX} uploads and downloads of images are under way")
        if self._of_project[project] >= _TRANSFERS_OF_PROJECT_MAX:
            raise TooManyTransfers(
                f"{_TRANSFERS_OF_PROJECT_MAX} uploads and downloads of images of this project are under way"
            )
        self._of_project[project] += 1
        return lambda: self._end(project)

    def _end(self, project: str) -> None:
        self._of_project[project] -= 1
        if not self._of_project[project]:
            del self._of_project[project]


class StoreUnavailable(Exception):
    """The folder cannot be used now. The message is for the log."""


class StoreFull(StoreUnavailable):
    """There is no more room."""


class ContentNotFound(Exception):
    """There is no file of this name."""


class Content(NamedTuple):
    """What is known of a content that was written to its end."""

    size: int
    checksum: str
    hash_value: str


class Digest:
    """What is learned of a content as it passes. ``head`` is its beginning."""

    def __init__(self) -> None:
        self.size = 0
        self.head = bytearray()
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._sha512 = hashlib.sha512()

    def add(self, block: bytes) -> None:
        self.size += len(block)
        self._md5.update(block)
        self._sha512.update(block)
        if len(self.head) < HEAD_BYTES:
            self.head += block[: HEAD_BYTES - len(self.head)]

    def make_content(self) -> Content:
        return Content(self.size, self._md5.hexdigest(), self._sha512.hexdigest())


class Upload(Protocol):
    """A content on its way in. It ends with ``close``, after ``finish``, or with ``discard``."""

    digest: Digest

    async def write(self, block: bytes) -> None: ...

    async def finish(self) -> Content:
        """All of it was written: it survives a crash of the machine now."""

    async def discard(self) -> None:
        """Remove it."""

    async def close(self) -> None: ...


class Reader(Protocol):
    """A content on its way out. It stays readable if it is removed meanwhile."""

    size: int

    async def read(self, offset: int, count: int) -> bytes:
        """So many bytes, or fewer at its end."""

    def close(self) -> None: ...


class ImageStore(Protocol):
    """Every method raises StoreUnavailable where the place of the contents cannot be used."""

    transfers: Transfers

    async def begin(self, name: str) -> Upload:
        """A new content, locked."""

    async def open(self, name: str) -> Reader:
        """ContentNotFound if there is none."""

    async def remove(self, name: str) -> None:
        """Whether there is one or not."""

    async def list_names(self) -> list[str]: ...

    async def has(self, name: str) -> bool: ...

    async def lock(self, name: str) -> Upload | None:
        """The content, for whoever removes it; None if it is gone, or another has its lock."""

    def close(self) -> None: ...


class FolderStore:
    """The folder is made when it is first written to."""

    def __init__(self, folder: Path) -> None:
        self.transfers = Transfers()
        self._folder = folder.absolute()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="images")

    # -- whole contents -------------------------------------------------------------------------

    async def begin(self, name: str) -> "_FileUpload":
        return _FileUpload(self, name, await self.run(lambda: _ContentFile(self._create(name))))

    async def open(self, name: str) -> "_FileReader":
        file, size = await self.run(lambda: self._open(name))
        return _FileReader(self, file, size)

    async def remove(self, name: str) -> None:
        await self.run(lambda: self.unlink(name))

    async def list_names(self) -> list[str]:
        return await self.run(self._list_names)

    async def has(self, name: str) -> bool:
        return await self.run(lambda: self._path(name).exists())

    async def lock(self, name: str) -> "_FileUpload | None":
        file = await self.run(lambda: self._lock(name))
        return None if file is None else _FileUpload(self, name, file)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def close_file(self, file: "_ContentFile") -> None:
        """Without waiting for it."""
        with contextlib.suppress(RuntimeError):
            # After the end of this store nothing is written any more, and the process is about to end.
            self._threads.submit(file.close)

    async def run(self, work: Callable[[], T]) -> T:
        """Have a thread do it. What a thread does cannot be cancelled: who stops waiting leaves it to it."""
        try:
            async with asyncio.timeout(_WITHIN_S):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except TimeoutError:
            raise StoreUnavailable(
                f"{self._folder}: a file operation took longer than {_WITHIN_S:g} s"
            ) from None
        except FileNotFoundError:
            raise ContentNotFound from None
        except OSError as error:
            kind = StoreFull if error.errno in _FULL else StoreUnavailable
            raise kind(f"{self._folder}: {error.strerror or error}") from error

    # -- what threads do ------------------------------------------------------------------------

    def _path(self, name: str) -> Path:
        assert _NAME.fullmatch(name), "names are made here, and are uuids"
        return self._folder / name

    def _create(self, name: str) -> int:
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path(name), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor

    def _open(self, name: str) -> "tuple[_ContentFile, int]":
        descriptor = os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
        return _ContentFile(descriptor), os.fstat(descriptor).st_size

    def _lock(self, name: str) -> "_ContentFile | None":
        try:
            descriptor = os.open(self._path(name), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return _ContentFile(descriptor)

    def _list_names(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._folder) if _NAME.fullmatch(name)]
        except FileNotFoundError:
            return []

    def unlink(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path(name).unlink()

    def sync(self, file: "_ContentFile") -> None:
        """The file and its name."""
        file.sync()
        folder = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class _ContentFile:
    """A file that is closed only when no thread is at work on it: who waits for a thread may have stopped
    waiting, and the number of a closed file is soon that of another."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        self._in_use = threading.Lock()

    def append(self, block: bytes) -> None:
        with self._in_use:
            left = memoryview(block)
            while left:
                left = left[os.write(self._get(), left) :]

    def read(self, offset: int, count: int) -> bytes:
        with self._in_use:
            return os.pread(self._get(), count, offset)

    def sync(self) -> None:
        with self._in_use:
            os.fsync(self._get())

    def close(self) -> None:
        with self._in_use:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _get(self) -> int:
        if self._descriptor is None:
            raise OSError(errno.EBADF, "the file was closed")
        return self._descriptor


class _FileUpload:
    def __init__(self, store: FolderStore, name: str, file: _ContentFile) -> None:
        self.digest = Digest()
        self._store = store
        self._name = name
        self._file = file

    async def write(self, block: bytes) -> None:
        await self._store.run(lambda: self._append(block))

    def _append(self, block: bytes) -> None:
        self._file.append(block)
        self.digest.add(block)

    async def finish(self) -> Content:
        await self._store.run(lambda: self._store.sync(self._file))
        return self.digest.make_content()

    async def discard(self) -> None:
        """The lock goes last: nobody else takes the file for a leftover while it is removed."""
        try:
            await self._store.run(lambda: self._store.unlink(self._name))
        finally:
            await self.close()

    async def close(self) -> None:
        # Writes of a shared folder may be waited for here.
        await self._store.run(self._file.close)


class _FileReader:
    def __init__(self, store: FolderStore, file: _ContentFile, size: int) -> None:
        self.size = size
        self._store = store
        self._file = file

    async def read(self, offset: int, count: int) -> bytes:
        return await self._store.run(lambda: self._file.read(offset, count))

    def close(self) -> None:
        self._store.close_file(self._file)


# -- in memory ----------------------------------------------------------------------------------


class MemoryStore:
    """Contents in memory, for regions on virtual time, which have no threads. What an owner of ``files``
    keeps outlives the process."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.transfers = Transfers()
        self._files: dict[str, bytes] = {} if files is None else files
        self._locked: set[str] = set()

    async def begin(self, name: str) -> "_MemoryUpload":
        self._files[name] = b""
        self._locked.add(name)
        return _MemoryUpload(self._files, self._locked, name)

    async def open(self, name: str) -> "_MemoryReader":
        if name not in self._files:
            raise ContentNotFound
        return _MemoryReader(self._files[name])

    async def remove(self, name: str) -> None:
        self._files.pop(name, None)

    async def list_names(self) -> list[str]:
        return list(self._files)

    async def has(self, name: str) -> bool:
        return name in self._files

    async def lock(self, name: str) -> "_MemoryUpload | None":
        if name in self._locked or name not in self._files:
            return None
        self._locked.add(name)
        return _MemoryUpload(self._files, self._locked, name)

    def close(self) -> None:
        """Nothing is open."""


class _MemoryUpload:
    def __init__(self, files: dict[str, bytes], locked: set[str], name: str) -> None:
        self.digest = Digest()
        self._files = files
        self._locked = locked
        self._name = name

    async def write(self, block: bytes) -> None:
        self._files[self._name] += block
        self.digest.add(block)

    async def finish(self) -> Content:
        return self.digest.make_content()

    async def discard(self) -> None:
        self._files.pop(self._name, None)
        await self.close()

    async def close(self) -> None:
        self._locked.discard(self._name)


class _MemoryReader:
    def __init__(self, content: bytes) -> None:
        self.size = len(content)
        self._content = content

    async def read(self, offset: int, count: int) -> bytes:
        return self._content[offset : offset + count]

    def close(self) -> None:
        """Nothing is open."""
