"""An HTTP client for Berth's own APIs. Knows the wire, nothing of the server's inside."""

from berth.client.placement import ClientError, PlacementClient

__all__ = ["ClientError", "PlacementClient"]
