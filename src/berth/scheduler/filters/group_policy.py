"""Hosts that the hard policy of a member's group allows it, exactly as ``ledger/groups.py`` judges.

The ledger judges a claim when it is made; here the same rule is applied to all hosts at once. With
``others[d]`` the members in a domain without the one that comes:

* it may always stay on a host where it stands, and comes to no host that is in no domain of the kind;
* apart: it comes to no domain d in which it did not stand if that makes ``others[d] + 1`` more than
  ``max_per_domain``, or more than ``max_skew`` beyond the emptiest domain after it has come;
* together: of the domains that it comes to, one has all the others.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from berth.model.groups import HOST
from berth.model.ids import AggregateId, ConsumerId
from berth.model.scheduling import ScheduleRequest
from berth.scheduler.groups import group_of, stands_for
from berth.search.providers import any_of
from berth.view import Mask, ProviderRecord, View
from berth.view.groups import Domain, GroupRecord

FOLLOWS_CLAIMS = True


def describe_request(view: View, request: ScheduleRequest) -> str | None:
    record = group_of(view, request)
    if record is None or not record.group.is_hard:
        return None
    group = record.group
    words = f"the {group.policy} of the group {group.name}, by {group.domain}"
    if group.max_per_domain is not None:
        words += f", at most {group.max_per_domain} in one"
    if group.max_skew is not None:
        words += f", at most {group.max_skew} more than in another"
    return words


def passing_hosts(view: View, request: ScheduleRequest) -> Mask:
    record = group_of(view, request)
    assert record is not None, "there is a group if anything is asked"
    who = stands_for(view, request)
    by_host = record.group.domain == HOST
    if record.group.is_apart:
        mask = _apart_by_host(view, record, who) if by_host else _apart(view, record, who, request)
    else:
        mask = _together_by_host(view, record, who) if by_host else _together(view, record, who)
    if _is_member(record, who):
        mask[[host.row for host, standing in record.hosts.items() if who in standing]] = True
    return mask


def _is_member(record: GroupRecord, who: ConsumerId | None) -> bool:
    return who in record.members or who in record.members.values()


def describe_host(view: View, request: ScheduleRequest, host: ProviderRecord) -> str:
    record = group_of(view, request)
    assert record is not None, "there is a group if anything is asked"
    kind = record.group.domain
    domains = view.groups.domains_of(host, kind)
    if not domains:
        return f"it is in no {kind}"
    standing = view.groups.standing(record)
    said = []
    for domain in domains:
        members = standing.get(domain, ())
        name = view.groups.domain_name(domain, (host,))
        said.append(f"the {kind} {name} has {len(members)} member{'' if len(members) == 1 else 's'}")
    if not record.group.is_apart:
        elsewhere = sorted({other.name for other in record.hosts if other is not host})
        said += [f"others are on {', '.join(elsewhere[:5])}"] if elsewhere else []
    return ", ".join(said)


# -- by host ------------------------------------------------------------------------------------


def _apart_by_host(view: View, record: GroupRecord, who: ConsumerId | None) -> Mask:
    mask = np.ones(view.row_end, np.bool_)
    most = record.group.max_per_domain
    if most is not None:
        mask[[host.row for host, standing in record.hosts.items() if len(standing) >= most]] = False
    return mask


def _together_by_host(view: View, record: GroupRecord, who: ConsumerId | None) -> Mask:
    others = _hosts_of_others(record, who)
    if not others:
        return np.ones(view.row_end, np.bool_)
    mask = np.zeros(view.row_end, np.bool_)
    if len(others) == 1:
        mask[others[0].row] = True
    return mask


def _hosts_of_others(record: GroupRecord, who: ConsumerId | None) -> list[ProviderRecord]:
    return [host for host, standing in record.hosts.items() if len(standing) > (who in standing)]


# -- by a kind of aggregate ---------------------------------------------------------------------


def _rows(view: View, domains: Iterable[Domain]) -> Mask:
    return any_of(view, [view.rows_in_aggregate(AggregateId(domain)) for domain in domains])


def _together(view: View, record: GroupRecord, who: ConsumerId | None) -> Mask:
    groups, kind = view.groups, record.group.domain
    others = {groups.domains_of(host, kind) for host in _hosts_of_others(record, who)}
    if not others:
        return _rows(view, groups.of_kind(kind))
    mask = _rows(view, set.intersection(*map(set, others)))
    stood = {
        domain
        for host, standing in record.hosts.items()
        if who in standing
        for domain in groups.domains_of(host, kind)
    }
    if stood:
        # It comes to no new domain there.
        new = [domain for domain in groups.of_kind(kind) if domain not in stood]
        mask |= _rows(view, stood) & ~_rows(view, new)
    return mask


class _Counts(NamedTuple):
    """Of a domain: how many of the others it has; whether the member stood there, and whether it will stand
    there wherever it comes to (through its migration)."""

    others: int
    stood: bool
    stays: bool


_NOBODY = _Counts(0, False, False)


def _apart(view: View, record: GroupRecord, who: ConsumerId | None, request: ScheduleRequest) -> Mask:
    group = record.group
    mask = _rows(view, view.groups.of_kind(group.domain))
    counts = _counts(view, record, who, request)
    if group.max_per_domain is not None:
        full = [d for d, c in counts.items() if c.others >= group.max_per_domain and not c.stood]
        mask &= ~_rows(view, full)
    if group.max_skew is not None:
        _leave_even(view, record, counts, mask)
    return mask


def _leave_even(view: View, record: GroupRecord, counts: dict[Domain, _Counts], mask: Mask) -> None:
    """Leave in the mask hosts to which a member can come without one domain getting too far ahead.

    The emptiest domains decide. The member that comes does not change which these are, unless it comes to all
    of them at once, which one host can do if there is only one of them (or if the host is in several).
    """
    group = record.group
    assert group.max_skew is not None
    # A domain with members has hosts.
    empty = (d for d in view.groups.of_kind(group.domain) if d not in counts and _has_hosts(view, d))
    populated = dict(counts)
    populated.update((domain, _NOBODY) for domain in empty)
    if not populated:
        return
    # How many each has when the member has come, to wherever that is.
    after = {d: c.others + c.stays for d, c in populated.items()}
    least = min(after.values())
    emptiest = [d for d, number in after.items() if number == least]
    raising = mask.copy()
    for domain in emptiest:
        raising &= False if populated[domain].stays else _rows(view, (domain,))
        if not raising.any():
            break
    most = least + group.max_skew
    ahead = [d for d, c in populated.items() if c.others >= most and not c.stood]
    far_ahead = [d for d in ahead if populated[d].others > most]
    mask &= ~_rows(view, ahead) | raising
    if far_ahead:
        mask &= ~_rows(view, far_ahead)


def _has_hosts(view: View, domain: AggregateId) -> bool:
    return any(view.record(row).parent is None for row in view.rows_in_aggregate(domain))


def _counts(
    view: View, record: GroupRecord, who: ConsumerId | None, request: ScheduleRequest
) -> dict[Domain, _Counts]:
    """The domains with members."""
    found: dict[Domain, _Counts] = {}
    staying = _staying(view, record, who, request)
    for domain, members in view.groups.standing(record).items():
        stood = who in members
        found[domain] = _Counts(len(members) - stood, stood, domain in staying)
    return found


def _staying(
    view: View, record: GroupRecord, who: ConsumerId | None, request: ScheduleRequest
) -> set[Domain]:
    """Domains in which the member stands through another consumer than the one that claims."""
    if who is None or not _is_member(record, who):
        return set()
    member = view.consumers.get(request.members[0])
    let_go = view.hosts_held(member.held) if member and request.members[0] in record.members else []
    return {
        domain
        for host, standing in record.hosts.items()
        if standing.get(who, 0) > (host in let_go)
        for domain in view.groups.domains_of(host, record.group.domain)
    }
