"""Serves an ASGI application over HTTP/1.1, on uvloop and llhttp (httptools); knows nothing else of Berth.

    processes.py    the parent: forks the workers, watches them, replaces those that die, passes a stop on
    heartbeat.py    how a parent sees that a process is alive
    worker.py       the life of one worker: its application's startup, serving, draining, shutdown
    asgi.py         the interface to the application, and its startup and shutdown
    connections.py  all connections of a worker: how many, how long each may take, how they end
    connection.py   one connection: bytes in, requests one after the other, bytes out
    reader.py       where a request begins and ends, and which ones are refused unread
    exchange.py     one request and its answer: ``receive``, ``send``, and how the answer is written
    limits.py       how much of anything clients may ask for

One thread does all of it: what a request costs here is two callbacks, one task and one write. Why it is our
own is explained in docs/decisions/008-our-own-http-server.md.
"""

from berth.serving.asgi import Application
from berth.serving.connections import TooFewFiles, room_for_connections
from berth.serving.heartbeat import BEAT_S, LOOK_S, Heartbeat, Watch, beat_from_loop
from berth.serving.limits import Limits, streams_nothing
from berth.serving.processes import describe_exit, run_workers
from berth.serving.worker import Address, CannotListen, free_address, listen, serve_until_stopped

__all__ = [
    "BEAT_S",
    "LOOK_S",
    "Address",
    "Application",
    "CannotListen",
    "Heartbeat",
    "Limits",
    "TooFewFiles",
    "Watch",
    "beat_from_loop",
    "describe_exit",
    "free_address",
    "listen",
    "room_for_connections",
    "run_workers",
    "serve_until_stopped",
    "streams_nothing",
]
