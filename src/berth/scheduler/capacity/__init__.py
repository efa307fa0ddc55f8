"""How many more members of a request the fleet has room for."""
