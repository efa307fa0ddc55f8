"""The process on a host: reports what the host has, carries commands out, and reports their results."""
