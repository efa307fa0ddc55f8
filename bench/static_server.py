"""A server that always gives the same answer: what the load client can see at most.

python -m bench.static_server PORT
"""

import asyncio
import sys
from typing import Final, cast

ANSWER: Final = b"HTTP/1.1 204 No Content\r\nserver: static\r\n\r\n"


class Static(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(ANSWER)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Static, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(int(sys.argv[1])))
