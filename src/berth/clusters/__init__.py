"""Clusters: what can be asked of one, how its nodes are spread and placed, and the reconciler that drives
each one to what it should be. Their HTTP is in ``api.native``."""
