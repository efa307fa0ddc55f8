"""/console: pages for a browser over the same APIs that every other client uses.

What is below ``static`` is served as it is; nothing is built. The browser asks the APIs of its own origin
with its user's token, so the console can do nothing that its user cannot.
"""
