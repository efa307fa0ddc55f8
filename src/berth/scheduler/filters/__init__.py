"""Filters: which hosts are ruled out. One file per reason."""
