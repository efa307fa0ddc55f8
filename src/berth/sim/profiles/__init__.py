"""The kinds of simulation, one file each."""
