"""Every route of the compute API. Each module below says which are its own."""

from typing import Final

from berth.api.compute.calls import Route

ROUTES: Final[tuple[Route, ...]] = ()
