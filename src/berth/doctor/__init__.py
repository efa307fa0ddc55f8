"""The doctor: findings about allocations that do not match the records, and the repairs that are safe."""
