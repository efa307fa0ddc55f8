"""How much of anything clients may ask for. ``Limits`` are set by the operator; the others protect the
process and are not settings: a well-behaved client stays far below them.

One sweep over all connections each second enforces the times, so they are accurate to a second.
"""

from collections.abc import Callable
from typing import Final, NamedTuple


def streams_nothing(method: str, path: str) -> bool:
    """No request has a body that is taken piece by piece."""
    return False


class Limits(NamedTuple):
    """What the connections of a worker may take together."""

    connections: int = 4096
    """When all are taken, an idle one makes room; when none is idle, the new one is answered 503."""

    connections_per_peer: int = 1024
    """From one address; 0: no limit. Addresses of this machine have none: a proxy on it has many clients."""

    bodies_bytes: int = 64 << 20
    """For the bodies of all requests in progress, as far as each is larger than FREE_BODY_BYTES."""

    always_answered: frozenset[str] = frozenset(("/healthz",))
    """Paths that are answered on a connection beyond the limit too."""

    streams_body: Callable[[str, str], bool] = streams_nothing
    """Whether the application takes the body of a request to a path piece by piece, and keeps none of it.
    Such a body may have any length: only what has not been taken yet is counted."""

    drain_s: float = 30
    """For requests in progress when told to stop. What is left then is dropped."""


REQUEST_LINE_BYTES_MAX: Final = 64 << 10
"""Candidate queries are long: 64 groups with all they may name fit."""

HEADER_BYTES_MAX: Final = 64 << 10
HEADERS_MAX: Final = 100
METHOD_BYTES_MAX: Final = 64

UNTAKEN_BODY_BYTES_MAX: Final = 256 << 10
"""More of a body than this is not read from the socket until the application has taken some."""

UNREAD_BODY_BYTES_MAX: Final = 64 << 10
"""How much may be left of a body that the application did not read, so that the connection is kept. To wait
for more than this costs more than a new connection."""

CHUNK_FRAMING_BYTES_MAX: Final = 64 << 10
"""By how much the lines between chunks may exceed what is in the chunks, and how long trailers may be. Every
chunk costs about the same, however small: many tiny ones would be cheap to send and expensive to read."""

JOINED_BODY_BYTES_MAX: Final = 32 << 10
"""Up to here, copying a body behind its head is cheaper than handing the kernel two pieces."""

FREE_BODY_BYTES: Final = 16 << 10
"""So much of every body is not counted: small requests, logins among them, are served while large ones wait.
All connections together can hold this many bytes beyond the budget."""

REFUSALS_MAX: Final = 256
"""Connections beyond the limit that are answered 503. More than that are dropped without an answer."""

OTHER_FILES: Final = 128
"""File descriptors that a worker needs for anything but connections."""

CONNECTIONS_LEAST: Final = 16
"""A worker that has files for fewer connections than this does not start."""

STOP_GRACE_S: Final = 5
"""After the time for requests in progress: for the application to shut down."""

ORPHAN_DRAIN_S: Final = 3
"""For requests in progress when the parent process is gone: whoever restarts it needs the database soon."""

HEAD_S: Final = 30
"""From the first byte of a request to the end of its headers."""

IDLE_S: Final = 75
"""Between two requests."""

BODY_S: Final = 30
"""Without a byte of a body that the application waits for. Also how long a whole body may take, plus a second
for every BODY_BYTES_PER_S that have arrived."""

STALLED_BODY_S: Final = 5
"""Without a byte of a body: from then on the connection makes room for others when all are taken."""

BODY_BYTES_PER_S: Final = 16 << 10
"""The lowest rate at which a body may arrive. The slowest links are faster; without a lowest rate a client
could hold a connection forever with a byte now and then."""

UNWANTED_BODY_S: Final = 5
"""For the rest of a body after its request was answered. It is read only to keep the connection, which is not
worth more."""

WRITE_S: Final = 60
"""Without the client reading a byte of its answer."""

LINGER_S: Final = 2
"""For a client to read an answer that was sent before its request had arrived whole."""
