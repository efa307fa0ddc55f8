"""Answers in gzip, for clients that ask for it: large texts only, and never streams, whose pieces must arrive
one by one.

Lists of hosts shrink to a tenth. The fastest level costs 10 ms for a megabyte, and the loop is free between
pieces. What is small costs more to compress than to send; what is not a text seldom shrinks.
"""

import asyncio
import zlib
from typing import Final

from berth.api.kernel.etags import HEADER as ETAG
from berth.api.kernel.etags import mark_compressed
from berth.api.kernel.http import Request, Response

BYTES_MIN: Final = 8 << 10
_LEVEL: Final = 1
_GZIP: Final = 16 + zlib.MAX_WBITS
_PIECE_BYTES: Final = 256 << 10
"""How much is compressed before others have their turn: 3 ms or so."""
_TEXTS: Final = ("application/json", "application/javascript", "text/", "image/svg+xml")
_VARY: Final = "accept-encoding"


async def compress(request: Request, response: Response) -> None:
    """Compress the body of a response, if that is worth while and the client asks for it."""
    headers = dict(response.headers)
    is_text = headers.get("content-type", "").startswith(_TEXTS)
    is_large = len(response.body) >= BYTES_MIN and is_text and "content-encoding" not in headers
    # Also where it is not compressed: a cache must not give one client what another asked for. A 304 must say
    # the same as the answer that it spares, and is sent before it is known how large that would be.
    if is_large or ETAG in headers:
        _vary(response)
    if not is_large or request.method == "HEAD":
        return
    if not accepts_gzip(request.headers.get("accept-encoding", "")):
        return
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    pieces = []
    for start in range(0, len(response.body), _PIECE_BYTES):
        if start:
            await asyncio.sleep(0)
        pieces.append(compressor.compress(response.body[start : start + _PIECE_BYTES]))
    response.body = b"".join((*pieces, compressor.flush()))
    response.headers = [
        (name, mark_compressed(value) if name == ETAG else value) for name, value in response.headers
    ]
    response.headers.append(("content-encoding", "gzip"))


def _vary(response: Response) -> None:
    named = [value for name, value in response.headers if name == "vary"]
    response.headers = [pair for pair in response.headers if pair[0] != "vary"]
    response.headers.append(("vary", ", ".join([*named, _VARY])))


def accepts_gzip(header: str) -> bool:
    """Whether an ``Accept-Encoding`` allows gzip: named, or by ``*``, and not with a weight of 0."""
    weights: dict[str, bool] = {}
    for part in header.lower().split(","):
        name, *parameters = (word.strip() for word in part.split(";"))
        weights[name] = not any(_is_zero(parameter) for parameter in parameters)
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", False)))


def _is_zero(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    return name.strip() == "q" and not value.strip().strip("0.")
