"""Which hosts are out of the question: one file per reason."""
