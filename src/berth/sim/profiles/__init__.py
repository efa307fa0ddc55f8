"""The kinds of simulation, one file each."""

from typing import Final

from berth.sim.profiles.lifecycle import Lifecycle
from berth.sim.profiles.steps import Steps
from berth.sim.simulation import Profile

PROFILES: Final[dict[str, Profile]] = {profile.name: profile for profile in (Lifecycle(), Steps())}
