"""Drains: how all servers leave a host. What HTTP says of it is in the API."""
