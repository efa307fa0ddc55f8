"""Write docs/guides/what-of-nova.md from expected.toml: ``python -m tests.tempest.page``, to a file."""

from collections import Counter
from typing import Final

from tests.tempest.expectations import Expectations, read_expectations

TOTALS: Final = {"tempest.api.compute": 588, "tempest.api.image": 102}
"""How many tests Tempest has of each API, in the version that requirements-tempest.txt pins."""
_HEAD: Final = """# What of Nova and Glance is there

For users of Nova's and Glance's clients: what works against Berth, and what is refused. It is measured:
`make tempest` runs Tempest's tests of both APIs against `berth up`, with a list of those that do not pass
(`tests/tempest/expected.toml`), and fails if the list is wrong. This page is written from the list.

| tests | all | pass | do not pass |
| --- | --- | --- | --- |
"""
_REASONS: Final = """
## What does not pass, and why

| tests | why |
| --- | --- |
"""
_TAIL: Final = """
Tests that Tempest skips count as not passed. Two of its conditions are lifted: that a server needs a network
of Neutron, and that a project is made for every class of tests.
"""


def render_page(expectations: Expectations) -> str:
    missing = Counter(".".join(test.split(".")[:3]) for test in expectations.tests)
    rows = [
        f"| `{name}` | {total} | {total - missing[name]} | {missing[name]} |\n"
        for name, total in TOTALS.items()
    ]
    reasons = sorted(
        (
            (len(one.get("skipped", ())) + len(one.get("failed", ())), one["why"])
            for one in expectations.reasons
        ),
        key=lambda row: (-row[0], row[1]),
    )
    listed = [f"| {count} | {why} |\n" for count, why in reasons]
    return "".join([_HEAD, *rows, _REASONS, *listed, _TAIL])


if __name__ == "__main__":
    print(render_page(read_expectations()), end="")
