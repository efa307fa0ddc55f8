"""A cell: hosts, their agents, and the conductor that executes saga runs on them.

It knows its own journal and Placement's endpoint, and nothing else. Saga runs come down into its journal, and
their progress is written there, for the region to read. Nothing here calls the region.
"""
