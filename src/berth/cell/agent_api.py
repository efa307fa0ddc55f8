"""The door at which agents knock: an ASGI application with three paths (``protocol``).

Who knocks shows the cell's token, where there is one. Everything is answered in JSON, also a refusal.
"""

import hmac
import logging
from typing import TypeVar

import msgspec

from berth.api.http import (
    BodyCutShort,
    BodyTooLarge,
    Receive,
    Response,
    Scope,
    Send,
    read_body,
    request_from_scope,
    send_response,
)
from berth.cell import protocol
from berth.cell.books import BooksAway, Refused
from berth.cell.desk import Desk
from berth.cell.hosts import Hosts, UnknownHost
from berth.engine import Engine, Unavailable
from berth.engine.engine import Overloaded

_log = logging.getLogger(__name__)
_BODY_BYTES_MAX = 8 << 20
_encode = msgspec.json.Encoder().encode

T = TypeVar("T")


class AgentApi:
    def __init__(
        self, engine: Engine, hosts: Hosts, desk: Desk, cell: str, silence_s: float, token: str | None
    ) -> None:
        self._engine = engine
        self._hosts = hosts
        self._desk = desk
        self._cell = cell
        self._silence_s = silence_s
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = request_from_scope(scope)
        try:
            request.body = await read_body(receive, _BODY_BYTES_MAX) if request.has_body else b""
            response = await self._answer(request.method, request.path, request.headers, request.body)
        except (BodyCutShort, BodyTooLarge) as error:
            response = _refusal(413, str(error))
        except msgspec.MsgspecError as error:
            response = _refusal(400, f"the body is not what is expected here: {error}")
        except UnknownHost as error:
            response = _refusal(404, f"the host {error} has not registered here")
        except Refused as error:
            response = _refusal(409, f"Placement refuses this host: {error}")
        except (BooksAway, Unavailable, Overloaded) as error:
            response = _refusal(503, str(error))
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            response = _refusal(500, "an unexpected error; the conductor's log has it")
        await send_response(send, response)

    async def _answer(self, method: str, path: str, headers: object, body: bytes) -> Response:
        if path == "/livez":
            return _json(b"{}")
        if path == "/readyz":
            return _json(b"{}") if self._engine.ready is None else _refusal(503, self._engine.ready)
        if not self._is_known(headers):
            return _refusal(
                401, f"the cell {self._cell} knows its agents by a token: send it in X-Agent-Token"
            )
        if method != "POST":
            return _refusal(405, "agents POST")
        match path:
            case protocol.REGISTER:
                await self._hosts.register(_decode(body, protocol.Register))
                return _json(_encode(protocol.Registered(cell=self._cell, silence_seconds=self._silence_s)))
            case protocol.POLL:
                return _json(_encode(await self._hosts.poll(_decode(body, protocol.Poll))))
            case protocol.REPORT:
                report = _decode(body, protocol.Report)
                is_awaited = self._desk.settle(report.host, report.order, report.error)
                return _json(_encode({"awaited": is_awaited}))
        return _refusal(404, f"there is no {path}")

    def _is_known(self, headers: object) -> bool:
        if self._token is None:
            return True
        assert isinstance(headers, dict)
        shown = headers.get(protocol.TOKEN_HEADER, "")
        return hmac.compare_digest(shown.encode(), self._token.encode())


def _decode(body: bytes, kind: type[T]) -> T:
    return msgspec.json.decode(body, type=kind)


def _json(body: bytes, status: int = 200) -> Response:
    return Response(status, body, "application/json")


def _refusal(status: int, text: str) -> Response:
    return _json(_encode({"errors": [{"status": status, "detail": text}]}), status)
