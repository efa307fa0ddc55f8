"""``berth doctor``: lists servers and migrations whose allocations are wrong; with ``--repair``, repairs what
is safe to repair, after a dry run; with ``--remove``, has servers destroyed that the region does not know."""

import argparse
import asyncio
from typing import Any, Final

from berth.cli.command import CommandError, add_json, describe
from berth.cli.output import Screen, TableColumn, TableView, confirm, show_patience
from berth.cli.region import add_region, connect
from berth.client import Client, ClientError
from berth.model.counts import count

_PATH: Final = "/berth/v1/doctor"
_COLUMNS: Final = (
    "kind",
    TableColumn("subject", shrinks=True),
    TableColumn("holds", shrinks=True),
    TableColumn("should hold", shrinks=True),
    TableColumn("what", shrinks=True),
    TableColumn("repair", shrinks=True),
)
_RESULT_COLUMNS: Final = (
    "outcome",
    TableColumn("finding", shrinks=True),
    TableColumn("detail", shrinks=True),
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(command, "The status is 0 if nothing is wrong, and 1 if something is.")
    command.add_argument(
        "--repair", action="store_true", help="repair what is safe to repair; first show what that is"
    )
    command.add_argument(
        "--remove",
        metavar="SERVER",
        nargs="+",
        default=[],
        help="destroy these servers, which the region has no record of: they are listed as unknown",
    )
    command.add_argument("--yes", action="store_true", help="repair or remove without asking")
    add_json(command)
    add_region(command)


def run(arguments: argparse.Namespace) -> int:
    if arguments.json and (arguments.repair or arguments.remove) and not arguments.yes:
        raise CommandError("--json asks no questions: to repair or remove give --yes too")
    if arguments.repair and arguments.remove:
        raise CommandError("--repair and --remove do not go together: repair first")
    client = connect(arguments)
    if arguments.remove:
        return asyncio.run(remove(client, arguments.remove, yes=arguments.yes, as_json=arguments.json))
    return asyncio.run(check(client, repair=arguments.repair, yes=arguments.yes, as_json=arguments.json))


async def remove(client: Client, servers: list[str], *, yes: bool, as_json: bool = False) -> int:
    """Have unknown servers destroyed. The exit status: 0 if that has begun for all, 1 if for some it has
    not."""
    visit = _Visit(client, Screen(), None, as_json=as_json)
    try:
        return await visit.remove([f"unknown_server:{server}" for server in servers], yes=yes)
    except ClientError as error:
        raise CommandError(str(error)) from error
    finally:
        await client.close()


async def check(
    client: Client, *, repair: bool, yes: bool, grace_s: int | None = None, as_json: bool = False
) -> int:
    """The exit status: 0 when nothing is wrong, or everything was repaired; 1 when something is."""
    visit = _Visit(client, Screen(), grace_s, as_json=as_json)
    try:
        return await visit.run(repair=repair, yes=yes)
    except ClientError as error:
        raise CommandError(str(error)) from error
    finally:
        await client.close()


class _Visit:
    """One examination, and the repairs that follow from it."""

    def __init__(self, client: Client, screen: Screen, grace_s: int | None, *, as_json: bool) -> None:
        self._client = client
        self._screen = screen
        self._grace_s = grace_s
        self._as_json = as_json

    async def run(self, *, repair: bool, yes: bool) -> int:
        with show_patience(f"asking {self._client.endpoint}"):
            found = await self._client.fetch("GET", _PATH)
        findings: list[dict[str, Any]] = found["findings"]
        if not findings:
            self._print("nothing is wrong")
            return self._end(found, 0)
        self._print(TableView(_COLUMNS, [_format_row(finding) for finding in findings]))
        more = " (there are more: repair these first)" if found["truncated"] else ""
        self._print(f"\n{count(len(findings), 'finding')}{more}")
        if not repair:
            return self._end(found, 1)
        ids = [finding["id"] for finding in findings]
        tried = await self._repair(ids, dry_run=True)
        self._print("\ndry run: nothing has been changed", _make_results(tried))
        safe = [one["id"] for one in tried if one["outcome"] == "would repair"]
        if not safe:
            self._print("\nnothing can be repaired safely")
            return self._end(found, 1)
        if not yes and not confirm(f"repair {count(len(safe), 'finding')}?"):
            self._print("nothing has been changed")
            return 1
        done = await self._repair(safe, dry_run=False)
        self._print("", _make_results(done))
        left = (await self._client.fetch("GET", _PATH))["findings"]
        self._print(f"\n{count(len(left), 'finding')} left" if left else "\nnothing is wrong any more")
        return self._end({**found, "repairs": done, "left": left}, 1 if left else 0)

    async def remove(self, ids: list[str], *, yes: bool) -> int:
        tried = await self._repair(ids, dry_run=True, remove=True)
        self._print("dry run: nothing has been changed", _make_results(tried))
        possible = [one["id"] for one in tried if one["outcome"] == "would remove"]
        if possible and not yes and not confirm(f"destroy {count(len(possible), 'server')} for good?"):
            self._print("nothing has been changed")
            return 1
        done = await self._repair(possible, dry_run=False, remove=True) if possible else []
        if done:
            self._print("", _make_results(done))
        refused = [one for one in (*tried, *done) if one["outcome"] == "refused"]
        removed = [one for one in done if one["outcome"] == "removed"]
        return self._end({"removed": removed, "refused": refused}, 1 if refused else 0)

    async def _repair(self, ids: list[str], *, dry_run: bool, remove: bool = False) -> list[dict[str, Any]]:
        asked: dict[str, object] = {"findings": ids, "dry_run": dry_run}
        if remove:
            asked["remove"] = True
        if self._grace_s is not None:
            asked["grace_s"] = self._grace_s
        with show_patience(f"asking {self._client.endpoint}"):
            repairs: list[dict[str, Any]] = (await self._client.fetch("POST", f"{_PATH}/repair", asked))[
                "repairs"
            ]
        return repairs

    def _print(self, *shown: str | TableView) -> None:
        if not self._as_json:
            self._screen.print(*shown)

    def _end(self, data: dict[str, Any], status: int) -> int:
        if self._as_json:
            self._screen.print_json(data)
        return status


def _make_results(repairs: list[dict[str, Any]]) -> TableView:
    return TableView(_RESULT_COLUMNS, [(one["outcome"], one["id"], one["detail"]) for one in repairs])


def _format_row(finding: dict[str, Any]) -> tuple[str, ...]:
    return (
        finding["kind"].replace("_", " "),
        finding["subject"],
        _format_held(finding["holds"]),
        _format_held(finding["should_hold"]),
        finding["sentence"],
        finding["repair"] or f"none: {finding['unsafe']}",
    )


def _format_held(held: dict[str, dict[str, int]]) -> str:
    """What is held, by provider; of a uuid only the first part is shown."""
    parts = (
        f"{provider.partition('-')[0]}: {', '.join(f'{n} {name}' for name, n in amounts.items())}"
        for provider, amounts in held.items()
    )
    return "; ".join(parts) or "nothing"
