"""A cell: hosts, their agents, and the conductor that has orders carried out.

It knows its own journal and Placement's endpoint, and nothing else. Orders come down into its journal; how
far they are stands there too, for the region to read. Nothing here calls the region.
"""
