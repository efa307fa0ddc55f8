"""The kinds of simulation, one file each."""

from typing import Final

from berth.sim.profiles.claims import Claims
from berth.sim.profiles.clusters import Clusters
from berth.sim.profiles.lifecycle import Lifecycle
from berth.sim.profiles.operators import Operators
from berth.sim.profiles.overload import Overload
from berth.sim.profiles.upgrades import Upgrades
from berth.sim.simulation import Profile

PROFILES: Final[dict[str, Profile]] = {
    profile.name: profile
    for profile in (Claims(), Clusters(), Lifecycle(), Operators(), Overload(), Upgrades())
}
