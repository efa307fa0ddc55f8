"""The simulator: a whole cloud in one thread, on a clock that is virtual, with edges that fail.

The parts are those of production, composed as production composes them. Only the edges are other ones: the
event loop and its clock, the network, the databases, the disks of hosts, and the life and death of processes.
One seed gives one history. Nothing imports this package but tests and tools.
"""
