"""Weighers: which hosts are better. One file per preference."""
