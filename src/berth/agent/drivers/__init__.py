"""Drivers: what carries commands out on a host. One file per kind of hypervisor; ``driver`` is their
interface."""
