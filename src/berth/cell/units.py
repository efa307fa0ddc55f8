"""Which units of a provider a server gets. The same question has the same answer.

Units are taken in the order in which the host names them, and a server that has some already keeps them. Cpus
(PCPU) are taken by cores, as the thread policy of the guest says:

* **prefer** (also without a policy): as many whole cores as the number fills; what is left over from cores
  that are in use in part, so that cores stay whole for others;
* **require**: whole cores with several threads, the last one perhaps in part;
* **isolate**: cores with one thread, which nobody can share.
"""

from collections.abc import Collection, Mapping

from berth.model.placement import DEDICATED
from berth.model.saga_runs import OwnedProvider


def choose_units(
    provider: OwnedProvider, kind: str, amount: int, taken: Collection[str], had: Collection[str], policy: str
) -> tuple[str, ...] | None:
    """So many units of a class, of those that are not ``taken`` by others; None if there are too few.
    ``had``: what the server has now."""
    named = provider.units[kind]
    free = [unit for unit in named if unit not in taken]
    kept = dict.fromkeys([unit for unit in free if unit in had][:amount])
    rest = [unit for unit in free if unit not in kept]
    missing = amount - len(kept)
    chosen = rest[:missing]
    if kind == DEDICATED:
        chosen = _choose_cpus(_find_cores(provider), rest, missing, policy)
    if len(chosen) < missing:
        return None
    wanted = {*kept, *chosen}
    return tuple(unit for unit in named if unit in wanted)


def _find_cores(provider: OwnedProvider) -> dict[str, tuple[str, ...]]:
    """The threads of the core of each cpu."""
    cores = {cpu: core for core in provider.siblings for cpu in core}
    return {cpu: cores.get(cpu, (cpu,)) for cpu in provider.units[DEDICATED]}


def _choose_cpus(
    cores: Mapping[str, tuple[str, ...]], free: list[str], amount: int, policy: str
) -> list[str]:
    """So many cpus, or as many as the policy lets there be."""
    left: dict[tuple[str, ...], list[str]] = {}
    for cpu in free:
        left.setdefault(cores[cpu], []).append(cpu)
    whole = [core for core, cpus in left.items() if len(cpus) == len(core)]
    if policy == "isolate":
        return [core[0] for core in whole if len(core) == 1][:amount]
    if policy == "require":
        return [cpu for core in whole if len(core) > 1 for cpu in left[core]][:amount]
    chosen: list[str] = []
    for core in whole:
        if len(core) <= amount - len(chosen):
            chosen += left.pop(core)
    # Cores with the fewest free threads come first; among equals the order stays.
    chosen += [cpu for core in sorted(left, key=lambda core: len(left[core])) for cpu in left[core]]
    return chosen[:amount]
