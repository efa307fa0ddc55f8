"""Tests of the simulator run on its event loop."""

from tests.virtual_time import anyio_backend, shared_objects, thrown_away

__all__ = ["anyio_backend", "shared_objects", "thrown_away"]
