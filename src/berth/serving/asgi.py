"""The interface to the application: ASGI, as far as it is used here, and the application's life.

A request's scope has ``type``, ``method``, ``path`` (percent-decoded), ``query_string``, ``headers`` (pairs
of bytes, the names in lower case) and ``client``. What belongs to the connection stays here: an application
does not send ``connection``, ``transfer-encoding`` or ``date``, and its ``content-length`` must be true.

    new --start--> started --drain--> draining --end--> ended
        \\--(failed, or told to stop)--> never started

An application whose startup raises an exception has failed to start; the exception says why. Two messages
are ours, beside ASGI's. ``lifespan.draining`` tells the application that no more requests come and those in
progress are finished: streams, which would never finish, end then. With ``lifespan.stop`` an application asks
to be stopped; its ``failure`` says why it cannot go on, if that is the reason.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

Headers = list[tuple[bytes, bytes]]

RESPONSE_START: Final = "http.response.start"


_log = logging.getLogger(__name__)


class StartupFailed(Exception):
    """The application cannot serve. The message is for the operator."""


class ApplicationFailed(Exception):
    """The application has served, and cannot go on. The message is for the operator."""


class Lifespan:
    """Runs the application's lifespan task, which lives as long as the worker serves."""

    def __init__(self, application: Application, stop: Callable[[], None]) -> None:
        """``stop`` is called if the application asks for it."""
        self._application = application
        self._stop = stop
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._startup: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self._failure: str | None = None

    async def start(self, stop: asyncio.Event) -> bool:
        """Start the application; whether it has started. StartupFailed if it cannot; False if ``stop`` came
        first: then the startup is cancelled, because no request was accepted yet."""
        self._messages.put_nowait({"type": "lifespan.startup"})
        self._task = asyncio.create_task(self._live(), name="lifespan")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        either: set[asyncio.Future[Any]] = {self._startup, stopping}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._startup.done():
            self._startup.result()
            return True
        self._task.cancel()
        await asyncio.wait({self._task})
        return False

    def drain(self) -> None:
        """Tell the application that no more requests come."""
        self._messages.put_nowait({"type": "lifespan.draining"})

    async def end(self) -> None:
        """Have the application shut down. ApplicationFailed if it could not go on."""
        assert self._task is not None, "an application is started before it is ended"
        self._messages.put_nowait({"type": "lifespan.shutdown"})
        await self._task
        if self._failure is not None:
            raise ApplicationFailed(self._failure)

    async def _live(self) -> None:
        try:
            await self._application({"type": "lifespan"}, self._messages.get, self._receive_message)
            self._settle(StartupFailed("cannot start: the application ended"))
        except Exception as error:
            if self._startup.done():
                _log.exception("the application failed to shut down")
                return
            _log.debug("startup failed", exc_info=True)
            self._settle(StartupFailed(f"cannot start: {str(error) or type(error).__name__}"))

    async def _receive_message(self, message: Message) -> None:
        if message["type"] == "lifespan.startup.complete":
            self._settle(None)
        elif message["type"] == "lifespan.startup.failed":
            self._settle(StartupFailed(message.get("message", "cannot start")))
        elif message["type"] == "lifespan.stop":
            self._failure = message.get("failure")
            self._stop()

    def _settle(self, failure: StartupFailed | None) -> None:
        if self._startup.done():
            return
        if failure is None:
            self._startup.set_result(None)
        else:
            self._startup.set_exception(failure)
