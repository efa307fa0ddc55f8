"""The schemas are upstream's, key for key and in the same order: their text ends up in error messages."""

import json
from typing import Any

import pytest
from placement.schemas import (
    aggregate,
    allocation,
    allocation_candidate,
    inventory,
    reshaper,
    resource_class,
    resource_provider,
    trait,
    usage,
)

from berth.api.placement import schemas

pytestmark = pytest.mark.fast

PAIRS: list[tuple[str, Any, Any]] = [
    ("resource class", schemas.RESOURCE_CLASS, resource_class.POST_RC_SCHEMA_V1_2),
    ("provider traits", schemas.PROVIDER_TRAITS, trait.SET_TRAITS_FOR_RP_SCHEMA),
    ("traits query", schemas.TRAITS_QUERY, trait.LIST_TRAIT_SCHEMA),
    ("new provider 1.0", schemas.new_provider(0), resource_provider.POST_RESOURCE_PROVIDER_SCHEMA),
    ("new provider 1.14", schemas.new_provider(14), resource_provider.POST_RP_SCHEMA_V1_14),
    ("provider 1.0", schemas.changed_provider(13), resource_provider.PUT_RESOURCE_PROVIDER_SCHEMA),
    ("provider 1.14", schemas.changed_provider(39), resource_provider.PUT_RP_SCHEMA_V1_14),
    ("providers query 1.0", schemas.providers_query(2), resource_provider.GET_RPS_SCHEMA_1_0),
    ("providers query 1.3", schemas.providers_query(3), resource_provider.GET_RPS_SCHEMA_1_3),
    ("providers query 1.4", schemas.providers_query(13), resource_provider.GET_RPS_SCHEMA_1_4),
    ("providers query 1.14", schemas.providers_query(14), resource_provider.GET_RPS_SCHEMA_1_14),
    ("providers query 1.18", schemas.providers_query(39), resource_provider.GET_RPS_SCHEMA_1_18),
    ("aggregates 1.1", schemas.aggregates(18), aggregate.PUT_AGGREGATES_SCHEMA_V1_1),
    ("aggregates 1.19", schemas.aggregates(19), aggregate.PUT_AGGREGATES_SCHEMA_V1_19),
    ("new inventory", schemas.NEW_INVENTORY, inventory.POST_INVENTORY_SCHEMA),
    ("inventory", schemas.CHANGED_INVENTORY, inventory.BASE_INVENTORY_SCHEMA),
    ("inventories", schemas.INVENTORIES, inventory.PUT_INVENTORY_SCHEMA),
    ("claim 1.0", schemas.claim(7), allocation.ALLOCATION_SCHEMA),
    ("claim 1.8", schemas.claim(11), allocation.ALLOCATION_SCHEMA_V1_8),
    ("claim 1.12", schemas.claim(27), allocation.ALLOCATION_SCHEMA_V1_12),
    ("claim 1.28", schemas.claim(28), allocation.ALLOCATION_SCHEMA_V1_28),
    ("claim 1.34", schemas.claim(37), allocation.ALLOCATION_SCHEMA_V1_34),
    ("claim 1.38", schemas.claim(38), allocation.ALLOCATION_SCHEMA_V1_38),
    ("claims 1.13", schemas.claims(13), allocation.POST_ALLOCATIONS_V1_13),
    ("claims 1.28", schemas.claims(28), allocation.POST_ALLOCATIONS_V1_28),
    ("claims 1.34", schemas.claims(34), allocation.POST_ALLOCATIONS_V1_34),
    ("claims 1.38", schemas.claims(39), allocation.POST_ALLOCATIONS_V1_38),
    ("reshape 1.30", schemas.reshape(30), reshaper.POST_RESHAPER_SCHEMA),
    ("reshape 1.34", schemas.reshape(34), reshaper.POST_RESHAPER_SCHEMA_V1_34),
    ("reshape 1.38", schemas.reshape(38), reshaper.POST_RESHAPER_SCHEMA_V1_38),
    ("usages 1.9", schemas.usages_query(9), usage.GET_USAGES_SCHEMA_1_9),
    ("usages 1.38", schemas.usages_query(38), usage.GET_USAGES_SCHEMA_V1_38),
    ("candidates 1.10", schemas.candidates_query(15), allocation_candidate.GET_SCHEMA_1_10),
    ("candidates 1.16", schemas.candidates_query(16), allocation_candidate.GET_SCHEMA_1_16),
    ("candidates 1.17", schemas.candidates_query(17), allocation_candidate.GET_SCHEMA_1_17),
    ("candidates 1.21", schemas.candidates_query(24), allocation_candidate.GET_SCHEMA_1_21),
    ("candidates 1.25", schemas.candidates_query(25), allocation_candidate.GET_SCHEMA_1_25),
    ("candidates 1.31", schemas.candidates_query(31), allocation_candidate.GET_SCHEMA_1_31),
    ("candidates 1.33", schemas.candidates_query(33), allocation_candidate.GET_SCHEMA_1_33),
    ("candidates 1.35", schemas.candidates_query(35), allocation_candidate.GET_SCHEMA_1_35),
    ("candidates 1.36", schemas.candidates_query(39), allocation_candidate.GET_SCHEMA_1_36),
]


@pytest.mark.parametrize(("ours", "theirs"), [pair[1:] for pair in PAIRS], ids=[pair[0] for pair in PAIRS])
def test_schema_is_upstreams(ours: Any, theirs: Any) -> None:
    assert json.dumps(ours, indent=1) == json.dumps(theirs, indent=1)
