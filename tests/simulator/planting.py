"""Planted bugs: whether one of a few seeds finds them."""

from berth.sim.profiles import PROFILES
from berth.sim.simulation import Profile, simulate

SEEDS_MAX = 8


def find_failure(profile: str | Profile, minutes: float, expected: str, seed: int = 1) -> str:
    """Play seeds, from the given one on, until one fails as expected; how each has failed."""
    failures = []
    for tried in range(seed, seed + SEEDS_MAX):
        played = PROFILES[profile] if isinstance(profile, str) else profile
        failure = simulate(played, tried, minutes=minutes).failure
        failures.append(f"seed {tried}: {failure}")
        if failure is not None and expected in failure:
            break
    return "\n".join(failures)
