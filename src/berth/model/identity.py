"""What a region keeps about tokens that it has issued: those that were revoked before they expire."""

from berth.model.servers import Record


class RevokedToken(Record, frozen=True, kw_only=True, tag="revoked_token"):
    """``id`` is the token's audit id, by which no token can be made."""

    user: str
    expires_at_s: int
