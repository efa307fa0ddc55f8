"""HTTP exactly as a test spells it: one connection per request and no header that was not asked for."""

import http.client
import socket
from typing import Final

import httpx

TIMEOUT_S: Final = 30


class WireTransport(httpx.BaseTransport):
    """httpx's own transport refuses what one test is about: a content-length that is no number."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        lines = [b"%s %s HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
        lines += [
            b"%s: %s" % (name, value) for name, value in request.headers.raw if name.lower() != b"connection"
        ]
        lines += [b"Connection: close", b"", request.read()]
        with socket.create_connection((request.url.host, request.url.port or 80), TIMEOUT_S) as sock:
            sock.sendall(b"\r\n".join(lines))
            reply = http.client.HTTPResponse(sock, method=request.method)
            reply.begin()
            body = reply.read()
        return httpx.Response(
            reply.status,
            headers=reply.getheaders(),
            content=body,
            extensions={"reason_phrase": reply.reason.encode(), "http_version": b"HTTP/1.1"},
        )
