"""Random requests: worlds of a few providers, and questions about them, from one source of randomness.

Names are few, so that requests meet each other: what one creates another deletes, and amounts are close to
what is left. A tenth of everything is a little wrong.
"""

from random import Random
from typing import Any, Final
from urllib.parse import quote

from tests.differential.exchange import WireRequest

PROVIDERS: Final = tuple(f"00000000-0000-4000-8000-00000000000{n}" for n in range(8))
AGGREGATES: Final = tuple(f"a0000000-0000-4000-8000-00000000000{n}" for n in range(4))
CONSUMERS: Final = tuple(f"c0000000-0000-4000-8000-00000000000{n}" for n in range(5))
CLASSES: Final = ("VCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_GPU")
TRAITS: Final = ("HW_CPU_X86_AVX", "MISC_SHARES_VIA_AGGREGATE", "CUSTOM_A", "CUSTOM_B")
_UNKNOWN_CLASS: Final = "CUSTOM_NOPE"
_UNKNOWN_TRAIT: Final = "CUSTOM_NO_TRAIT"
_LATEST: Final = 39

_OTHERS: Final = {
    "resources": ("VCPU:0", "VCPU:17", "VCPU", "", "VCPU:x", "VCPU:1,VCPU:2", "MEMORY_MB:1"),
    "required": (
        *("", "CUSTOM_A,", "!CUSTOM_A", "!!CUSTOM_A", "in:CUSTOM_A", "in:", "in:xCUSTOM_T"),
        "HW_CPU_X86_AVX",
    ),
    "member_of": (
        *("", "in:", "nonsense", AGGREGATES[0], f"!{AGGREGATES[1]}"),
        f"!in:{AGGREGATES[0]},{AGGREGATES[1]}",
    ),
    "in_tree": ("", "nonsense", PROVIDERS[0], f" {PROVIDERS[0]} "),
    "group_policy": ("none", "isolate", " isolate", "", "bogus"),
    "limit": ("0", "1", "3", "x", " 2", "+1"),
    "same_subtree": ("1", "", "1,2", "nobody"),
    "root_required": ("CUSTOM_A", "!CUSTOM_A", ""),
    "name": ("", "p0"),
    "associated": ("true", ""),
}
"""What a parameter is replaced by, or repeated with, when it shall be a little wrong."""


class Author:
    """Writes sequences of requests."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)

    def sequence(self, length: int) -> list[WireRequest]:
        """A world being built, and then changes and questions in turn."""
        return self._first_providers() + [self._any() for _ in range(length)]

    # -- building -------------------------------------------------------------------------------

    def _first_providers(self) -> list[WireRequest]:
        requests = [
            WireRequest("PUT", "/resource_classes/CUSTOM_GPU", _LATEST),
            *(WireRequest("PUT", f"/traits/{name}", _LATEST) for name in TRAITS if name.startswith("CUSTOM")),
        ]
        for number in range(self._rng.randint(2, len(PROVIDERS))):
            parent = self._rng.choice(PROVIDERS[:number]) if number and self._rng.random() < 0.5 else None
            body: dict[str, Any] = {"name": f"p{number}", "uuid": PROVIDERS[number]}
            if parent is not None:
                body["parent_provider_uuid"] = parent
            requests.append(WireRequest("POST", "/resource_providers", _LATEST, body))
            requests += [
                self._set_inventories(number),
                self._set_traits(number),
                self._set_aggregates(number),
            ]
        return requests

    def _set_inventories(self, number: int) -> WireRequest:
        classes = self._some(CLASSES, least=0)
        inventories = {name: self._inventory() for name in classes}
        body = {"resource_provider_generation": self._generation(number), "inventories": inventories}
        return WireRequest(
            "PUT", f"/resource_providers/{PROVIDERS[number]}/inventories", self._version(), body
        )

    def _inventory(self) -> dict[str, Any]:
        rng = self._rng
        inventory: dict[str, Any] = {"total": rng.randint(1, 8)}
        if rng.random() < 0.2:
            inventory["reserved"] = rng.randint(0, inventory["total"])
        if rng.random() < 0.2:
            inventory["allocation_ratio"] = rng.choice((0.5, 1.0, 2.0, 1.5))
        if rng.random() < 0.2:
            inventory["max_unit"] = rng.randint(1, 6)
        if rng.random() < 0.1:
            inventory["min_unit"] = rng.randint(1, 3)
        if rng.random() < 0.1:
            inventory["step_size"] = rng.randint(1, 3)
        return inventory

    def _set_traits(self, number: int) -> WireRequest:
        traits = [name for name in TRAITS if self._rng.random() < 0.3]
        body = {"resource_provider_generation": self._generation(number), "traits": traits}
        return WireRequest("PUT", f"/resource_providers/{PROVIDERS[number]}/traits", self._version(6), body)

    def _set_aggregates(self, number: int) -> WireRequest:
        version = self._version(1)
        aggregates: Any = [id for id in AGGREGATES if self._rng.random() < 0.35]
        if version >= 19:
            generation = self._generation(number)
            aggregates = {"resource_provider_generation": generation, "aggregates": aggregates}
        path = f"/resource_providers/{PROVIDERS[number]}/aggregates"
        return WireRequest("PUT", path, version, aggregates)

    # -- changing -------------------------------------------------------------------------------

    def _any(self) -> WireRequest:
        number = self._rng.randrange(len(PROVIDERS))
        chance = self._rng.random()
        if chance < 0.55:
            return self._candidates()
        if chance < 0.70:
            return self._providers()
        if chance < 0.80:
            return self._allocate()
        if chance < 0.86:
            return self._read()
        if chance < 0.89:
            return self._allocate_many()
        return self._rng.choice(
            (
                lambda: self._set_inventories(number),
                lambda: self._set_traits(number),
                lambda: self._set_aggregates(number),
                lambda: self._delete(),
                lambda: self._move(number),
            )
        )()

    def _delete(self) -> WireRequest:
        path = self._rng.choice(
            (
                f"/resource_providers/{self._rng.choice(PROVIDERS)}",
                f"/resource_providers/{self._rng.choice(PROVIDERS)}/inventories",
                f"/resource_providers/{self._rng.choice(PROVIDERS)}/inventories/{self._rng.choice(CLASSES)}",
                f"/resource_providers/{self._rng.choice(PROVIDERS)}/traits",
                f"/allocations/{self._rng.choice(CONSUMERS)}",
                f"/allocations/{self._rng.choice(CONSUMERS)}",
                "/resource_classes/CUSTOM_GPU",
                "/traits/CUSTOM_B",
            )
        )
        return WireRequest("DELETE", path, self._version())

    def _move(self, number: int) -> WireRequest:
        body: dict[str, Any] = {"name": f"p{number}"}
        if self._rng.random() < 0.7:
            body["parent_provider_uuid"] = self._rng.choice((None, *PROVIDERS))
        return WireRequest("PUT", f"/resource_providers/{PROVIDERS[number]}", self._version(14), body)

    def _allocate(self) -> WireRequest:
        version = self._version(12)
        body = self._allocation(version)
        if version >= 38:
            body["consumer_type"] = self._rng.choice(("INSTANCE", "MIGRATION"))
        if version >= 28:
            body["consumer_generation"] = self._rng.choice((None, None, 0, 1, 2))
        return WireRequest("PUT", f"/allocations/{self._rng.choice(CONSUMERS)}", version, body)

    def _allocation(self, version: int) -> dict[str, Any]:
        held = {
            id: {"resources": self._amounts_dict()}
            for id in self._rng.sample(PROVIDERS, self._rng.randint(1, 2))
        }
        return {"allocations": held, "project_id": self._project(), "user_id": self._project()}

    def _allocate_many(self) -> WireRequest:
        version = self._version(13)
        body = {}
        for consumer in self._rng.sample(CONSUMERS, 2):
            one = self._allocation(version)
            if self._rng.random() < 0.3:
                one["allocations"] = {}
            if version >= 38:
                one["consumer_type"] = "INSTANCE"
            if version >= 28:
                one["consumer_generation"] = self._rng.choice((None, 0, 1, 2))
            body[consumer] = one
        return WireRequest("POST", "/allocations", version, body)

    # -- asking ---------------------------------------------------------------------------------

    def _read(self) -> WireRequest:
        id = self._rng.choice(PROVIDERS)
        path = self._rng.choice(
            (
                f"/resource_providers/{id}",
                f"/resource_providers/{id}/inventories",
                f"/resource_providers/{id}/usages",
                f"/resource_providers/{id}/aggregates",
                f"/resource_providers/{id}/traits",
                f"/resource_providers/{id}/allocations",
                f"/allocations/{self._rng.choice(CONSUMERS)}",
                "/usages?" + self._query([("project_id", self._project()), ("user_id", self._project())]),
                "/usages?" + self._query([("project_id", self._project()), ("consumer_type", "INSTANCE")]),
                "/traits?"
                + self._query([("name", self._rng.choice(("in:CUSTOM_A,CUSTOM_B", "startswith:CUSTOM")))]),
                "/traits?" + self._query([("associated", self._rng.choice(("true", "false", "True", "x")))]),
                "/resource_classes",
            )
        )
        return WireRequest("GET", path, self._version())

    def _candidates(self) -> WireRequest:
        version = self._version(10, usually=_LATEST)
        suffixes: list[str] = [""] if self._rng.random() < 0.7 else []
        if version >= 25:
            names = ("1", "2", "3") if version < 33 else ("1", "_X", "2")
            suffixes += self._rng.sample(names, self._rng.randint(0 if suffixes else 1, 3))
        pairs: list[tuple[str, str]] = []
        for suffix in suffixes:
            if self._rng.random() < 0.93:
                pairs.append((f"resources{suffix}", self._amounts()))
            pairs += self._constraints(version, suffix)
        if len(suffixes) > 1 and self._rng.random() < 0.95:
            pairs.append(("group_policy", self._rng.choice(("none", "isolate"))))
        if version >= 35 and self._rng.random() < 0.1:
            pairs.append(("root_required", self._traits(version, may_choose=False)))
        if version >= 36 and self._rng.random() < 0.25 and len(suffixes) > 1:
            chosen = [suffix for suffix in suffixes if suffix]
            pairs.append(("same_subtree", ",".join(self._some(chosen, least=1))))
        if version >= 16 and self._rng.random() < 0.1:
            pairs.append(("limit", self._rng.choice(("1", "2", "100"))))
        return WireRequest("GET", f"/allocation_candidates?{self._query(pairs)}", version)

    def _providers(self) -> WireRequest:
        version = self._version(usually=_LATEST)
        pairs: list[tuple[str, str]] = []
        if self._rng.random() < 0.15:
            pairs.append(("name", self._rng.choice(("p0", "p1", "", "nobody"))))
        if self._rng.random() < 0.1:
            pairs.append(("uuid", self._rng.choice(PROVIDERS)))
        if self._rng.random() < 0.5:
            pairs.append(("resources", self._amounts()))
        pairs += self._constraints(version, "")
        return WireRequest("GET", f"/resource_providers?{self._query(pairs)}", version)

    def _constraints(self, version: int, suffix: str) -> list[tuple[str, str]]:
        rng, pairs = self._rng, []
        for _ in range(rng.choice((0, 0, 1, 2 if version >= 39 else 1))):
            pairs.append((f"required{suffix}", self._traits(version)))
        for _ in range(rng.choice((0, 0, 0, 1, 2))):
            pairs.append((f"member_of{suffix}", self._member_of(version)))
        if rng.random() < 0.1:
            pairs.append((f"in_tree{suffix}", rng.choice((*PROVIDERS, CONSUMERS[0]))))
        return pairs

    def _traits(self, version: int, *, may_choose: bool = True) -> str:
        names = self._some(
            (*TRAITS, *TRAITS, _UNKNOWN_TRAIT) if self._rng.random() < 0.2 else TRAITS, least=1
        )[:2]
        if may_choose and version >= 39 and self._rng.random() < 0.3:
            return f"in:{','.join(names)}"
        if version >= 22:
            names = [f"!{name}" if self._rng.random() < 0.3 else name for name in names]
        return ",".join(names)

    def _member_of(self, version: int) -> str:
        some = self._some(AGGREGATES, least=1)[:2]
        text = f"in:{','.join(some)}" if len(some) > 1 else some[0]
        return f"!{text}" if version >= 32 and self._rng.random() < 0.25 else text

    def _amounts(self) -> str:
        return ",".join(f"{name}:{amount}" for name, amount in self._amounts_dict().items())

    def _amounts_dict(self) -> dict[str, int]:
        classes = (*CLASSES, _UNKNOWN_CLASS) if self._rng.random() < 0.08 else CLASSES
        return {name: self._rng.randint(1, 4) for name in self._some(classes, least=1)[:3]}

    # -- a little wrong -------------------------------------------------------------------------

    def _query(self, pairs: list[tuple[str, str]]) -> str:
        """The pairs as a query; now and then one is repeated, misspelled or in another place."""
        rng = self._rng
        pairs = list(pairs)
        if pairs and rng.random() < 0.12:
            name, value = rng.choice(pairs)
            pairs.insert(rng.randrange(len(pairs) + 1), (name, self._mangled(name, value)))
        if pairs and rng.random() < 0.05:
            place = rng.randrange(len(pairs))
            pairs[place] = (pairs[place][0], self._mangled(*pairs[place]))
        if rng.random() < 0.1:
            rng.shuffle(pairs)
        return "&".join(f"{name}={quote(value, safe=':,!')}" for name, value in pairs)

    def _mangled(self, name: str, value: str) -> str:
        stem = next((stem for stem in _OTHERS if name.startswith(stem)), None)
        return self._rng.choice(("", f" {value}", value, "x") if stem is None else (*_OTHERS[stem], value))

    # -- choosing -------------------------------------------------------------------------------

    def _version(self, least: int = 0, usually: int | None = None) -> int:
        if self._rng.random() < (0.5 if usually is None else 0.7):
            return _LATEST
        return self._rng.randint(least, _LATEST)

    def _generation(self, number: int) -> Any:
        return f"@{PROVIDERS[number]}" if self._rng.random() < 0.95 else self._rng.randint(0, 9)

    def _project(self) -> str:
        return self._rng.choice(("p1", "p2"))

    def _some(self, names: Any, least: int) -> list[str]:
        count = self._rng.randint(least, len(names))
        return (
            self._rng.sample(names, count)
            if self._rng.random() < 0.5
            else self._rng.sample(names, min(least or 1, count))
        )
