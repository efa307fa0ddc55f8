"""The address that is served: whether it is free, and a socket on it for every worker.

Each worker listens with a socket of its own, and the kernel spreads new connections over them. Such sockets
share their port with whoever asks to share, another Berth too; so the parent first tries one that does not.
"""

import socket
from typing import Any, Final, NamedTuple

BACKLOG: Final = 1024


class CannotListen(Exception):
    """The address cannot be had; the message says why."""


class Address(NamedTuple):
    """An address in numbers, as its family spells it."""

    family: socket.AddressFamily
    spelled: Any


def free_address(host: str, port: int) -> Address:
    """The address to listen on; CannotListen if there is none, or somebody else listens there."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, spelled = found[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(spelled)
    except OSError as error:
        raise CannotListen(error.strerror) from error
    return Address(family, spelled)


def listener(address: Address) -> socket.socket:
    """A socket that shares the address with those of the other workers. It does not listen yet."""
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address.spelled)
    except OSError as error:
        sock.close()
        raise CannotListen(error.strerror) from error
    return sock
