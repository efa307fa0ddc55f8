"""An HTTP client for Berth's own APIs. Knows the wire, nothing of the server's inside."""

from berth.client.client import (
    Answer,
    Client,
    ClientError,
    Token,
    Unreachable,
    connect_directly,
    keystone_token,
)

__all__ = ["Answer", "Client", "ClientError", "Token", "Unreachable", "connect_directly", "keystone_token"]
