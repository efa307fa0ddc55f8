"""Sagas: everything that can be done to servers, one file per operation.

A saga begins in the region: one command claims what it needs and writes the run (``propose`` of its file, a
function of the view). The steps are executed in the server's cell, each with what undoes it (``runner``
decides, ``cell.conductor`` does). Progress comes back into the server's record (``region.status_sync``).
"""
