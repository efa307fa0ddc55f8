"""Lifecycle tests run in the simulator."""

from tests.virtual_time import anyio_backend, shared_objects, thrown_away

__all__ = ["anyio_backend", "shared_objects", "thrown_away"]
