"""Which hosts are better: one file per taste."""
