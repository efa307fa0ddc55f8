"""What can be done to servers: one file per operation, and the one runner that carries all of them out.

An operation begins in the region: one command claims what it needs and writes the order (``begin`` of its
file, a function of the view). The steps of the order are carried out in the server's cell (``runner``), each
with what undoes it. What came of it goes back up into the server's record (``absorb``).
"""
