"""How much one write may name. Bodies are limited in bytes as well; this is about the work that they ask for.

A refusal says what was sent, what is allowed, and which setting allows more.
"""

from collections.abc import Iterable

from berth.api.kernel.problem import Problem
from berth.api.placement.calls import PlacementCall
from berth.model.commands import Claim


def limit_providers(call: PlacementCall, providers: Iterable[str]) -> None:
    """Refuse a write that names more providers than one request may."""
    count, count_max = len(set(providers)), call.services.settings.request_providers_max
    if count > count_max:
        raise Problem(
            400,
            f"The request names {count} resource providers, more than the limit of {count_max} "
            "in one request. Send it in smaller parts.",
        )


def limit_list(call: PlacementCall, count: int, what: str) -> None:
    """Refuse a write with a longer list than a request may have."""
    count_max = call.services.settings.request_list_max
    if count > count_max:
        raise Problem(
            400,
            f"The request lists {count} {what}, more than the limit of {count_max} in one list. "
            "Send fewer, or have the setting request_list_max raised.",
        )


def limit_claims(call: PlacementCall, claims: tuple[Claim, ...], inventories: int = 0) -> None:
    """Refuse claims of too many consumers, of too many classes on one provider, or too many of them in all:
    all of it is judged and applied in one go, while others wait. ``inventories`` come in the same write."""
    limit_list(call, len(claims), "consumers")
    count = inventories + sum(len(resources) for claim in claims for _, resources in claim.wanted)
    count_max = call.services.settings.request_allocations_max
    if count > count_max:
        raise Problem(
            400,
            f"The request writes {count} allocations and inventories, more than the limit of {count_max}. "
            "Send it in smaller parts, or have the setting request_allocations_max raised.",
        )
    for claim in claims:
        for _, resources in claim.wanted:
            limit_list(call, len(resources), "resource classes")
