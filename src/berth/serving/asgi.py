"""The interface to the application: ASGI, as far as it is used here.

A request's scope has ``type``, ``method``, ``path`` (percent-decoded), ``query_string``, ``headers`` (pairs
of bytes, the names in lower case) and ``client``. What belongs to the connection stays here: an application
does not say ``connection``, ``transfer-encoding`` or ``date``, and of ``content-length`` only the truth.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

Headers = list[tuple[bytes, bytes]]

RESPONSE_START: Final = "http.response.start"
