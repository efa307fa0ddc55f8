"""Who asked for a change: what the journal keeps beside the events, for the audit."""

import msgspec


class Origin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    request_id: str
    user: str | None
    project: str | None
    action: str
