"""How many more members of a request the fleet has room for."""

from berth.scheduler.capacity.members import count_capacity, count_fits

__all__ = ["count_capacity", "count_fits"]
