"""``berth doctor``: lists servers and migrations whose allocations are wrong; with ``--repair``, repairs what
is safe to repair, after a dry run."""

import argparse
import asyncio
import sys
from typing import Any, Final

from berth.cli.command import CommandError, add_region, describe, format_table, region_client
from berth.client import Client, ClientError

_PATH: Final = "/berth/v1/doctor"
_COLUMNS: Final = ("kind", "subject", "holds", "should hold", "what", "repair")
_RESULT_COLUMNS: Final = ("outcome", "finding", "detail")


def add_arguments(command: argparse.ArgumentParser) -> None:
    describe(
        command,
        "It authenticates with the token in BERTH_TOKEN. The status is 0 if nothing is wrong, and 1 if\n"
        "something is.",
    )
    add_region(command)
    command.add_argument(
        "--repair", action="store_true", help="repair what is safe to repair; first show what that is"
    )
    command.add_argument("--yes", action="store_true", help="repair without asking")


def run(arguments: argparse.Namespace) -> int:
    client = region_client(arguments, "admin")
    return asyncio.run(check(client, repair=arguments.repair, yes=arguments.yes))


async def check(client: Client, *, repair: bool, yes: bool, grace_s: int | None = None) -> int:
    """The exit status: 0 when nothing is wrong, or everything was repaired; 1 when something is."""
    try:
        return await _check(client, repair=repair, yes=yes, grace_s=grace_s)
    except ClientError as error:
        raise CommandError(str(error)) from error
    finally:
        await client.close()


async def _check(client: Client, *, repair: bool, yes: bool, grace_s: int | None) -> int:
    answer = await client.fetch("GET", _PATH)
    findings: list[dict[str, Any]] = answer["findings"]
    if not findings:
        print("nothing is wrong")
        return 0
    sys.stdout.write(format_table(_COLUMNS, [_format_row(finding) for finding in findings]))
    more = " (there are more: repair these first)" if answer["truncated"] else ""
    print(f"\n{_format_count(len(findings), 'finding')}{more}")
    if not repair:
        return 1
    asked: dict[str, object] = {"findings": [finding["id"] for finding in findings]}
    if grace_s is not None:
        asked["grace_s"] = grace_s
    return await _repair(client, asked, yes=yes)


async def _repair(client: Client, asked: dict[str, object], *, yes: bool) -> int:
    tried = (await client.fetch("POST", f"{_PATH}/repair", {**asked, "dry_run": True}))["repairs"]
    print("\ndry run: nothing has been changed")
    sys.stdout.write(format_table(_RESULT_COLUMNS, [_format_result(one) for one in tried]))
    safe = [one["id"] for one in tried if one["outcome"] == "would repair"]
    if not safe:
        print("\nnothing can be repaired safely")
        return 1
    if not yes and not _confirm(len(safe)):
        print("nothing has been changed")
        return 1
    wanted = {**asked, "findings": safe, "dry_run": False}
    done = (await client.fetch("POST", f"{_PATH}/repair", wanted))["repairs"]
    print()
    sys.stdout.write(format_table(_RESULT_COLUMNS, [_format_result(one) for one in done]))
    left = (await client.fetch("GET", _PATH))["findings"]
    print(f"\n{_format_count(len(left), 'finding')} left" if left else "\nnothing is wrong any more")
    return 1 if left else 0


def _confirm(count: int) -> bool:
    print(f"\nrepair {_format_count(count, 'finding')}? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _format_count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _format_row(finding: dict[str, Any]) -> tuple[str, ...]:
    return (
        finding["kind"].replace("_", " "),
        finding["subject"],
        _format_held(finding["holds"]),
        _format_held(finding["should_hold"]),
        finding["sentence"],
        finding["repair"] or f"none: {finding['unsafe']}",
    )


def _format_result(one: dict[str, Any]) -> tuple[str, ...]:
    return one["outcome"], one["id"], one["detail"]


def _format_held(held: dict[str, dict[str, int]]) -> str:
    """What is held, by provider; of a uuid only the first part is shown."""
    parts = (
        f"{provider.partition('-')[0]}: {', '.join(f'{n} {name}' for name, n in amounts.items())}"
        for provider, amounts in held.items()
    )
    return "; ".join(parts) or "nothing"
