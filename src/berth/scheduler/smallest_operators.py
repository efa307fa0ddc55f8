"""What an operator could change instead of the request: the state of hosts, the rule of a group."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

from berth.model.explanations import Change
from berth.model.groups import Group, Policy
from berth.model.ids import Row
from berth.scheduler.membership import group_of
from berth.scheduler.smallest_trials import FORCED, STATES, Variant, Variants

ENABLE_COST: Final = 0.7
REPAIR_COST: Final = 0.9
RULE_COST: Final = 0.4
"""For each member more that may share a domain."""

SOFTEN_COST: Final = 0.8

_HOSTS_NAMED_MAX: Final = 3
_SOFT: Final[dict[Policy, Policy]] = {"affinity": "soft-affinity", "anti-affinity": "soft-anti-affinity"}


def other_hosts(variants: Variants, variant: Variant) -> Iterator[Variant]:
    """The same request, if hosts were enabled, or up."""
    if variants.is_forced and FORCED not in variant.unasked:
        return
    for name in STATES:
        if name not in variants.masks or name in variant.unasked or variants.masks[name].all():
            continue
        fits, rows = variants.fits(variant._replace(unasked=variant.unasked | {name}))
        out = rows[~variants.masks[name][rows]]
        if not len(out):
            continue
        # Those with the most room first, and no more of them than are needed.
        out = out[np.argsort(-fits.rooms.each[out], kind="stable")]
        kept = rows[variants.masks[name][rows]]
        enough = bisect_left(
            range(1, len(out)),
            variants.needed,
            key=lambda number: fits.among(np.sort(np.concatenate([kept, out[:number]]))).members,
        )
        chosen = [Row(row) for row in out[: enough + 1].tolist()]
        cost = ENABLE_COST if name == "enabled" else REPAIR_COST
        yield variant.but(_state_change(variants, name, chosen), cost, let_in=variant.let_in | set(chosen))


def _state_change(variants: Variants, name: str, rows: list[Row]) -> Change:
    view = variants.view
    verb, kind = ("enabled", "enable_host") if name == "enabled" else ("up again", "repair_host")
    hosts = [view.record(row) for row in rows]
    if len(hosts) == 1:
        status = view.hosts.get(hosts[0].id)
        reason = f" (it is {'disabled' if kind == 'enable_host' else 'down'}"
        reason += f": {status.reason})" if status is not None and status.reason else ")"
        return Change(kind, hosts[0].name, f"with the host {hosts[0].name} {verb}{reason}")
    named = ", ".join(host.name for host in hosts[:_HOSTS_NAMED_MAX])
    more = ", ..." if len(hosts) > _HOSTS_NAMED_MAX else ""
    return Change(kind, named, f"with {len(hosts)} hosts {verb} ({named}{more})", 0, len(hosts))


def other_rule(variants: Variants, variant: Variant) -> Iterator[Variant]:
    """The same request, if its group were less strict: as little as helps."""
    record = group_of(variants.view, variant.request)
    if record is None or not record.group.is_hard or variant.rule is not None:
        return
    group = record.group
    if group.is_apart:
        for field in ("max_per_domain", "max_skew"):
            yield from _raised(variants, variant, group, field)
    soft = _SOFT[group.policy]
    text = f"with the policy of the group {group.name} as a wish ({soft} instead of {group.policy})"
    rule = msgspec.structs.replace(group, policy=soft, max_per_domain=None, max_skew=None)
    yield variant.but(Change("soften_group", group.name, text), SOFTEN_COST, rule=rule)


def _raised(variants: Variants, variant: Variant, group: Group, field: str) -> Iterator[Variant]:
    """With the least higher limit that helps, if any does."""
    limit: int | None = getattr(group, field)
    if limit is None:
        return
    fits, rows = variants.fits(variant)

    def helps(more: int) -> bool:
        rule = msgspec.structs.replace(group, **{field: limit + more})
        return variants.with_rule(variant, fits, rule).among(rows).members >= variants.needed

    # Mostly one more is enough, so that it is tried first, then two, four and so on.
    more = 1
    while more < variants.needed and not helps(more):
        more *= 2
    more = more // 2 + 1 + bisect_left(range(more // 2 + 1, more), True, key=helps)
    rule = msgspec.structs.replace(group, **{field: limit + more})
    yield variant.but(_rule_change(group, field, limit, limit + more), RULE_COST * more, rule=rule)


def _rule_change(group: Group, field: str, before: int, after: int) -> Change:
    if field == "max_per_domain":
        text = f"with {after} members of the group {group.name} on one {group.domain} instead of {before}"
    else:
        text = f"with a max_skew of {after} in the group {group.name} instead of {before}"
    return Change(f"raise_{field}", group.name, text, before, after)
