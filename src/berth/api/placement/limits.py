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


def limit_claims(call: PlacementCall, claims: tuple[Claim, ...]) -> None:
    """Refuse claims of too many consumers, or of too many classes on one provider."""
    limit_list(call, len(claims), "consumers")
    for claim in claims:
        for _, resources in claim.wanted:
            limit_list(call, len(resources), "resource classes")
