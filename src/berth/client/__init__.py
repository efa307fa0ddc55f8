"""An HTTP client for Berth's own APIs. Knows the wire, nothing of the server's inside."""

from berth.client.client import PART_OF, Answer, Client, ClientError, PartOf, Unreachable, connect_directly
from berth.client.clouds import CloudDescription, CloudError, read_cloud, read_variables
from berth.client.keystone import CloudLogin, Token, keystone_token
from berth.client.transport import Transport, WireAnswer, WireRequest, WireStream

__all__ = [
    "PART_OF",
    "Answer",
    "Client",
    "ClientError",
    "CloudDescription",
    "CloudError",
    "CloudLogin",
    "PartOf",
    "Token",
    "Transport",
    "Unreachable",
    "WireAnswer",
    "WireRequest",
    "WireStream",
    "connect_directly",
    "keystone_token",
    "read_cloud",
    "read_variables",
]
