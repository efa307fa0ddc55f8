"""The kinds of simulation, one file each."""

from typing import Final

from berth.sim.profiles.claims import ClaimsProfile
from berth.sim.profiles.clusters import ClustersProfile
from berth.sim.profiles.crossing import CrossingProfile
from berth.sim.profiles.lifecycle import LifecycleProfile
from berth.sim.profiles.operators import OperatorsProfile
from berth.sim.profiles.overload import OverloadProfile
from berth.sim.profiles.pools import PoolsProfile
from berth.sim.profiles.steps import StepsProfile
from berth.sim.profiles.upgrades import UpgradesProfile
from berth.sim.simulation import Profile

PROFILES: Final[dict[str, Profile]] = {
    profile.name: profile
    for profile in (
        ClaimsProfile(),
        ClustersProfile(),
        CrossingProfile(),
        LifecycleProfile(),
        OperatorsProfile(),
        OverloadProfile(),
        PoolsProfile(),
        StepsProfile(),
        UpgradesProfile(),
    )
}
