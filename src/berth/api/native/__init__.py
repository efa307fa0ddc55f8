"""/berth/v1: what Berth offers beyond the Placement API, on the same ledger."""
