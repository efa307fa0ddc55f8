"""The codes of refusals: Placement's where it has one, ours where it has none. The OpenAPI description and
the guide list ours."""

from typing import Final

# -- Placement's --------------------------------------------------------------------------------

UNDEFINED: Final = "placement.undefined_code"
INVENTORY_IN_USE: Final = "placement.inventory.inuse"
CONCURRENT_UPDATE: Final = "placement.concurrent_update"
DUPLICATE_NAME: Final = "placement.duplicate_name"
PROVIDER_IN_USE: Final = "placement.resource_provider.inuse"
CANNOT_DELETE_PARENT: Final = "placement.resource_provider.cannot_delete_parent"
PROVIDER_NOT_FOUND: Final = "placement.resource_provider.not_found"
QUERY_DUPLICATE_KEY: Final = "placement.query.duplicate_key"
QUERY_BAD_VALUE: Final = "placement.query.bad_value"
QUERY_MISSING_VALUE: Final = "placement.query.missing_value"

# -- ours ---------------------------------------------------------------------------------------

GROUP_POLICY: Final = "berth.group_policy"
"""Clients that know other codes only take any other 409 for "not here", which is what it means."""
TOO_LARGE: Final = "berth.too_large"
FORMAT_TOO_OLD: Final = "berth.format_too_old"
BAD_BODY: Final = "berth.bad_body"
BAD_PARAMETER: Final = "berth.bad_parameter"
UNKNOWN_PARAMETER: Final = "berth.unknown_parameter"
INDEX_AHEAD: Final = "berth.index_ahead"
UNAUTHORIZED: Final = "berth.unauthorized"
FORBIDDEN: Final = "berth.forbidden"
NOT_FOUND: Final = "berth.not_found"
METHOD_NOT_ALLOWED: Final = "berth.method_not_allowed"
NOT_ACCEPTABLE: Final = "berth.not_acceptable"
PRUNED: Final = "berth.pruned"
CONFLICT: Final = "berth.conflict"
QUOTA_EXCEEDED: Final = "berth.quota_exceeded"
NO_FIT: Final = "berth.no_fit"
PLAN_MOVED: Final = "berth.plan_moved"
UNSUPPORTED_MEDIA: Final = "berth.unsupported_media"
BODY_TOO_LARGE: Final = "berth.body_too_large"
UNEXPECTED: Final = "berth.unexpected"
OVERLOADED: Final = "berth.overloaded"
UNAVAILABLE: Final = "berth.unavailable"
TOO_MANY_STREAMS: Final = "berth.too_many_streams"
TOO_MANY_SEARCHES: Final = "berth.too_many_searches"
