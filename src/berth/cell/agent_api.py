"""The agent API: an ASGI application with the paths of the agent protocol (``protocol``).

A caller is known before its body is read, and speaks for one host (``agents``). All answers are JSON.
"""

import logging
from typing import TypeVar

import msgspec

from berth.api.kernel.health import PATHS as HEALTH_PATHS
from berth.api.kernel.health import Health
from berth.api.kernel.http import (
    BodyCutShort,
    BodyTooLarge,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    read_body,
    request_from_scope,
    send_response,
)
from berth.cell import protocol
from berth.cell.agents import AgentCaller, NotAllowed, read_caller
from berth.cell.figures import read_figures
from berth.cell.hosts import ConductorReplaced, HostNotRegistered, HostRefused, HostRegistry
from berth.cell.mailbox import Mailbox
from berth.cell.placement import ClaimRefused, PlacementUnavailable
from berth.engine import Engine, Unavailable
from berth.engine.engine import Overloaded
from berth.runtime.clock import Clock
from berth.runtime.secrets import digest_of
from berth.runtime.telemetry import Telemetry

_log = logging.getLogger(__name__)
_BODY_BYTES_MAX = 8 << 20
_LENGTH_DIGITS_MAX = 18
_ROUTES = HEALTH_PATHS | {protocol.REGISTER, protocol.POLL, protocol.REPORT, protocol.CREDENTIAL}
_encode = msgspec.json.Encoder().encode

T = TypeVar("T")


class AgentApi:
    """``token``: with which a host may join; None: any may. ``/healthz``, ``/readyz`` and ``/metrics`` are
    answered as a region answers them, to anybody."""

    def __init__(
        self,
        engine: Engine,
        hosts: HostRegistry,
        mailbox: Mailbox,
        telemetry: Telemetry,
        clock: Clock,
        cell: str,
        heartbeat_timeout_s: float,
        token: str | None,
    ) -> None:
        self._health = Health(
            engine,
            telemetry.exposition,
            lambda: telemetry.look(read_figures(engine.view, clock.now_ns())),
        )
        self._telemetry = telemetry
        self._clock = clock
        self._hosts = hosts
        self._mailbox = mailbox
        self._cell = cell
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = request_from_scope(scope)
        started_ns = self._clock.monotonic_ns()
        response = await self._answer_or_refuse(request, receive)
        await send_response(send, response)
        route = request.path if request.path in _ROUTES else "other"
        seconds = (self._clock.monotonic_ns() - started_ns) / 1e9
        self._telemetry.count(request.method, route, response.status, seconds)

    async def _answer_or_refuse(self, request: Request, receive: Receive) -> Response:
        try:
            return await self._answer(request, receive)
        except NotAllowed as error:
            return _refusal(401, str(error))
        except (BodyCutShort, BodyTooLarge) as error:
            return _refusal(413, str(error))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return _refusal(400, f"The body is invalid: {error}")
        except HostNotRegistered as error:
            return _refusal(404, f"The host {error} is not registered in this cell.")
        except (HostRefused, ClaimRefused) as error:
            return _refusal(409, str(error))
        except Unavailable as error:
            # The database's own words are for the log.
            _log.warning("%s %s refused: %s", request.method, request.path, error.detail or error)
            return _refusal(503, str(error))
        except (PlacementUnavailable, ConductorReplaced, Overloaded) as error:
            return _refusal(503, str(error))
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            return _refusal(500, "Unexpected error: see the conductor's log.")

    async def _answer(self, request: Request, receive: Receive) -> Response:
        path = request.path
        if path in HEALTH_PATHS:
            return await self._health.handle(request)
        caller = read_caller(request.headers, self._token)
        self._hosts.check_caller(caller)
        if request.method != "POST":
            return _refusal(405, "The method must be POST.")
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > _LENGTH_DIGITS_MAX or int(length) > _BODY_BYTES_MAX:
            raise BodyTooLarge(_BODY_BYTES_MAX)
        body = await read_body(receive, _BODY_BYTES_MAX) if request.has_body else b""
        return await self._handle(path, caller, body)

    async def _handle(self, path: str, caller: AgentCaller, body: bytes) -> Response:
        """Answer a caller that is known."""
        hosts = self._hosts
        match path:
            case protocol.REGISTER:
                register = _decode(body, protocol.Register)
                hosts.check_host(caller, register.host)
                await hosts.register(register, caller)
                return _json(
                    _encode(
                        protocol.Registered(
                            cell=self._cell, heartbeat_timeout_seconds=self._heartbeat_timeout_s
                        )
                    )
                )
            case protocol.POLL:
                poll = _decode(body, protocol.Poll)
                hosts.check_joined(caller, poll.host)
                return _json(_encode(await hosts.poll(poll, caller.version)))
            case protocol.REPORT:
                report = _decode(body, protocol.Report)
                hosts.check_joined(caller, report.host)
                is_awaited = self._mailbox.settle(report.host, report.command, report.error, report.addresses)
                return _json(_encode(protocol.ReportAnswer(awaited=is_awaited)))
            case protocol.CREDENTIAL:
                wanted = _decode(body, protocol.NewCredential)
                hosts.check_joined(caller, wanted.host)
                if caller.secret is None:
                    raise NotAllowed("To change a credential, send the current one.")
                await hosts.change_credential(wanted.host, digest_of(wanted.credential))
                return _json(b"{}")
        return _refusal(404, f"There is no path {path}.")


def _decode(body: bytes, kind: type[T]) -> T:
    # Every value but the last of a list or an object has a comma behind it.
    if body.count(b",") > protocol.VALUES_MAX:
        raise msgspec.ValidationError(f"it has more than {protocol.VALUES_MAX} values")
    return msgspec.json.decode(body, type=kind)


def _json(body: bytes, status: int = 200) -> Response:
    return Response(status, body, "application/json", [(protocol.VERSION_HEADER, str(protocol.VERSION))])


def _refusal(status: int, text: str) -> Response:
    return _json(_encode({"errors": [{"status": status, "detail": text}]}), status)
