"""A conductor's way into the books: Placement's API, and nothing else.

Every change is one POST of all the consumers it is about, each at the generation that was last written. If
one of them has moved, they are read. If they hold what they were to hold, the change has been made, and only
its answer was lost; else the order's conflict policy says what then (``operations.conflicts``).
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from berth.client.http import Answer, HttpClient, Unreachable
from berth.model.orders import Book, Work
from berth.model.servers import ConflictPolicy, Held
from berth.operations.asking import INSTANCE, MIGRATION
from berth.operations.conflicts import added, as_dict, as_held, minus, plus, same
from berth.operations.steps import Entry

_ATTEMPTS: Final = 20
_CONCURRENT: Final = "placement.concurrent_update"
VERSION: Final = "placement 1.39"
_TIMEOUT_S: Final = 10


class Refused(Exception):
    """Placement says no; the message is its own."""


class BooksAway(Exception):
    """Placement cannot say now. Whether a change was made is not known."""


class _Change(NamedTuple):
    """What a consumer shall hold, in place of what it was last given."""

    consumer: str
    type: str
    last: Book
    wanted: Held

    @property
    def own(self) -> Held:
        """What is wanted, without what others had added before."""
        return minus(self.wanted, self.last.kept)


class Books:
    def __init__(self, client: HttpClient) -> None:
        self._client = client

    async def write(self, work: Work, entry: Entry, *, is_undoing: bool) -> tuple[Book, Book | None]:
        """Make an entry for an order: what server and migration hold afterwards. What is undone goes on
        whatever others have changed, and keeps it."""
        policy: ConflictPolicy = "merge" if is_undoing else "retry" if work.is_forced else work.policy
        server = _Change(work.server, INSTANCE, work.books, ())
        nothing = Book((), None)
        last = work.migration_books or nothing
        migration = _Change(work.migration or "", MIGRATION, last, ())
        has_migration = work.migration is not None
        match entry:
            case "release":
                # Nothing is kept for a server that is gone.
                policy = "retry" if policy == "merge" else policy
                books = await self._change(work, [server, migration] if has_migration else [server], policy)
                return books[0], nothing if has_migration else None
            case "release_migration":
                (book,) = await self._change(work, [migration], policy)
                return work.books, book
            case "give_back":
                back = server._replace(wanted=plus((last.held, work.kept, work.books.kept)))
                if not last.held:
                    # It was given back already, before a crash; the books know.
                    back = server._replace(wanted=work.books.held)
                first, second = await self._change(work, [back, migration], policy)
                return first, second
            case "check_migration":
                await self._check(work, last, policy)
                return work.books, work.migration_books
            case "claimed":
                return work.books, work.migration_books

    async def move(self, work: Work, wanted: Held) -> Book:
        """Move the server's claim to an alternate: group policies and capacity are judged there."""
        wanted = plus((wanted, work.books.kept))
        (book,) = await self._change(work, [_Change(work.server, INSTANCE, work.books, wanted)], "merge")
        return book

    async def _change(self, work: Work, changes: Sequence[_Change], policy: ConflictPolicy) -> list[Book]:
        given = [change.last.generation for change in changes]
        wanted = [change.wanted for change in changes]
        for _ in range(_ATTEMPTS):
            body = {
                change.consumer: _claim(work, change.type, held, generation)
                for change, held, generation in zip(changes, wanted, given, strict=True)
                if held or generation is not None
            }
            if not body:
                return [Book((), None) for _ in changes]
            answer = await self._ask("POST", "/allocations", body)
            if answer.status == 204:
                return [
                    _with_kept(Book(held, (generation or 0) + 1 if held else None), change)
                    for change, held, generation in zip(changes, wanted, given, strict=True)
                ]
            if answer.status != 409 or answer.code != _CONCURRENT:
                raise Refused(answer.detail)
            now = [await self._held(change.consumer) for change in changes]
            if all(map(_is_made, changes, now)):
                return [_with_kept(book, change) for change, book in zip(changes, now, strict=True)]
            given = [book.generation for book in now]
            moved = [c.consumer for c, book in zip(changes, now, strict=True) if _differs(book, c.last)]
            if policy == "fail" and moved:
                who = ", ".join(moved)
                raise Refused(f"somebody else has changed the allocations of {who}: look, and ask again")
            if policy == "merge":
                wanted = [
                    plus((change.wanted, added(book.held, change.last.held)))
                    if change.type == INSTANCE
                    else change.wanted
                    for change, book in zip(changes, now, strict=True)
                ]
        raise BooksAway(f"others were first {_ATTEMPTS} times")

    async def _check(self, work: Work, last: Book, policy: ConflictPolicy) -> None:
        now = await self._held(work.migration or "")
        if policy == "fail" and now.held and not same(now.held, last.held):
            raise Refused(f"somebody else has changed the allocations of the migration {work.migration}")

    async def _held(self, consumer: str) -> Book:
        answer = await self._ask("GET", f"/allocations/{consumer}", None)
        if answer.status != 200:
            raise BooksAway(answer.detail)
        found = answer.body["allocations"]
        held = as_held({id: dict(there["resources"]) for id, there in found.items()})
        return Book(held, answer.body.get("consumer_generation"))

    async def _ask(self, method: str, path: str, body: object) -> Answer:
        try:
            answer = await self._client.ask(method, path, body, _TIMEOUT_S)
        except Unreachable as error:
            raise BooksAway(str(error)) from error
        if answer.status >= 500 or answer.status in (401, 429):
            raise BooksAway(answer.detail)
        return answer


def _is_made(change: _Change, now: Book) -> bool:
    """Whether a consumer has what it was to have, and others at most have added to it since: then it was only
    the answer that was lost. A migration is nobody else's, and has exactly that."""
    if change.type == MIGRATION or not change.wanted:
        return same(now.held, change.wanted)
    return not added(change.wanted, now.held)


def _with_kept(book: Book, change: _Change) -> Book:
    """What a server has, with the part that is not of this change's making noted."""
    if change.type == MIGRATION or not book.held:
        return book
    return Book(book.held, book.generation, added(book.held, change.own))


def _differs(now: Book, last: Book) -> bool:
    return now.generation != last.generation or not same(now.held, last.held)


def _claim(work: Work, type: str, held: Held, generation: int | None) -> dict[str, Any]:
    return {
        "allocations": {id: {"resources": amounts} for id, amounts in as_dict(held).items()},
        "project_id": work.project,
        "user_id": work.user,
        "consumer_generation": generation,
        "consumer_type": type,
    }
