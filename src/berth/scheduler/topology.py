"""The guest that a flavor and an image describe: its NUMA cells, which of its cpus are dedicated, its pages.

The keys are Nova's, and so are the rules for which of a flavor and an image may go together (``hw:KEY`` of a
flavor is ``hw_KEY`` of an image). What does not go together is refused with both values.

| key | rule |
| --- | --- |
| ``cpu_policy`` | a flavor's dedicated wins; its mixed excludes an image's dedicated, its shared both |
| ``resources:PCPU``, ``resources1:PCPU`` | all cpus are dedicated; in place of a policy |
| ``cpu_thread_policy`` | the same in both, or prefer in the flavor; only with dedicated cpus |
| ``trait:HW_CPU_HYPERTHREADING`` | in place of a thread policy: required is require, forbidden is isolate |
| ``numa_nodes``, ``numa_cpus.N``, ``numa_mem.N`` | in one of them; the lists for all cells, and of all |
| ``mem_page_size`` | an image may choose where the flavor says large or any |
| ``pci_numa_affinity_policy`` | the same in both |
| ``emulator_threads_policy``, ``cpu_dedicated_mask`` | in the flavor alone |

Values are those that the table accepts (spec_table.py): only what they mean together is judged here.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

from berth.model.placement import DEDICATED, HYPERTHREADING
from berth.model.rejections import SpecInvalid

T = TypeVar("T")

CELLS_MAX: Final = 64
CPUS_MAX: Final = 4096

SMALL: Final = 0
"""Ordinary memory, MEMORY_MB, as a page size."""

PAGES: Final = {2048: "CUSTOM_MEMORY_PAGES_2M", 1_048_576: "CUSTOM_MEMORY_PAGES_1G"}
"""The resource class, in pages, of each size in KiB."""

THREADS_OF_A_CORE: Final = (1, 2, 4, 8)
"""Hosts with several threads to a core give dedicated cpus in whole cores: amounts are rounded up to that."""

_PAGE_CHOICES: Final = {"small": (SMALL,), "large": (1_048_576, 2048), "any": (SMALL, 2048, 1_048_576)}
"""Sizes that will do, in order. Nova takes the largest of any; here huge pages are kept for those who ask."""

_UNSUFFIXED_PCPU: Final = f"resources:{DEDICATED}"
_PAGE_SIZE: Final = re.compile(r"([0-9]{1,9})([KMG])i?B", re.ASCII)
_AMOUNT: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
_KB: Final = {"K": 1, "M": 1 << 10, "G": 1 << 20}
PAGE_SIZES_WORDS: Final = "small, large, any, 2048 or 2MB, 1048576 or 1GB"

_CPU_RANGE: Final = re.compile(r"\^?[0-9]{1,4}(-[0-9]{1,4})?", re.ASCII)
CPU_LIST_WORDS: Final = f"numbers and ranges from 0 to {CPUS_MAX - 1} such as 0-3,6, with ^ to leave one out"


class GuestCell(NamedTuple):
    """A NUMA cell of a guest, which is on one NUMA cell of its host: its cpus, by their numbers in the guest,
    and which of them are dedicated."""

    cpus: frozenset[int]
    pinned: frozenset[int]
    memory_mb: int

    @property
    def shared(self) -> int:
        return len(self.cpus) - len(self.pinned)

    @property
    def dedicated(self) -> int:
        return len(self.pinned)


class GuestTopology(NamedTuple):
    """``has_cells``: the guest asks for NUMA cells; otherwise it is one, and may be split over several of the
    host. ``pages``: sizes that will do, in order. ``threads``: the policy for siblings of its dedicated cpus.
    ``emulator_cpus``: dedicated cpus beside its own."""

    cells: tuple[GuestCell, ...]
    has_cells: bool
    pages: tuple[int, ...]
    threads: str
    emulator_cpus: int


class GuestSize(NamedTuple):
    vcpus: int
    memory_mb: int


def round_up(amount: int, threads: int) -> int:
    """So many dedicated cpus, in whole cores of so many threads."""
    return -(-amount // threads) * threads


def find_named(specs: Mapping[str, str], name: str) -> list[tuple[str, int]]:
    """The keys by which a flavor asks for some of a resource class, and how much."""
    found = ((key, value) for key, value in specs.items() if re.fullmatch(f"resources[^:]*:{name}", key))
    amounts = ((key, int(value)) for key, value in found if _AMOUNT.fullmatch(value))
    return [(key, amount) for key, amount in amounts if amount]


def find_wrong_cpus(
    size: GuestSize, specs: Mapping[str, str], properties: Mapping[str, str]
) -> SpecInvalid | None:
    """What Nova refuses about the cpus of a guest, and Berth has not always refused: new servers are held to
    it, and those that are there can still be moved."""
    return _Reader(size, specs, properties).find_wrong_cpus()


def read_threads(specs: Mapping[str, str], properties: Mapping[str, str]) -> str:
    """The policy for siblings of dedicated cpus. What contradicts it has been refused before."""
    _, value = _find_thread_trait(specs, properties) or ("", "")
    of_trait = {"required": "require", "forbidden": "isolate"}.get(value, "prefer")
    return _choose_threads(specs, properties) or of_trait


def read_topology(
    size: GuestSize, specs: Mapping[str, str], properties: Mapping[str, str], needs_cell: bool = False
) -> GuestTopology | SpecInvalid | None:
    """The topology of a guest; None if neither flavor nor image say anything about it. A guest that
    ``needs_cell`` is one cell, unless it asks for several."""
    return _Reader(size, specs, properties).read(needs_cell)


def read_pci_policy(specs: Mapping[str, str], properties: Mapping[str, str]) -> str | SpecInvalid | None:
    """How near to its guest a device must be."""
    return _same_in_both("pci_numa_affinity_policy", specs, properties)


class _Reader:
    def __init__(self, size: GuestSize, specs: Mapping[str, str], properties: Mapping[str, str]) -> None:
        self._size = size
        self._specs = specs
        self._properties = properties

    def read(self, needs_cell: bool) -> GuestTopology | SpecInvalid | None:
        nodes = self._read_nodes()
        policy = self._read_policy()
        pages = self._read_pages()
        if isinstance(nodes, SpecInvalid):
            return nodes
        if isinstance(policy, SpecInvalid):
            return policy
        if isinstance(pages, SpecInvalid):
            return pages
        dedicated = self._read_dedicated(policy)
        if isinstance(dedicated, SpecInvalid):
            return dedicated
        threads = self._read_threads(bool(dedicated))
        emulator = self._read_emulator(bool(dedicated))
        if isinstance(threads, SpecInvalid):
            return threads
        if isinstance(emulator, SpecInvalid):
            return emulator
        # Amounts that are named by themselves are asked for as they are named.
        named = [key for key, _ in find_named(self._specs, DEDICATED)]
        is_named = bool(named) and ((threads == "prefer" and not emulator) or named != [_UNSUFFIXED_PCPU])
        if nodes is None and needs_cell:
            nodes = 1
        if nodes is None and pages is None and (not dedicated or is_named):
            return None
        cells = self._read_cells(1 if nodes is None else nodes, dedicated)
        if isinstance(cells, SpecInvalid):
            return cells
        fitting = self._fitting_pages(pages or (SMALL,), cells)
        if isinstance(fitting, SpecInvalid):
            return fitting
        return GuestTopology(cells, nodes is not None, fitting, threads, emulator)

    # -- cpus -----------------------------------------------------------------------------------

    def _read_policy(self) -> str | SpecInvalid:
        of_flavor, of_image = _both("cpu_policy", self._specs, self._properties)
        named = find_named(self._specs, DEDICATED)
        if (of_flavor or of_image) and _UNSUFFIXED_PCPU in dict(named):
            return self._wrong_policy(_UNSUFFIXED_PCPU)
        refused = {"mixed": ("dedicated",), "shared": ("dedicated", "mixed")}.get(of_flavor or "", ())
        if of_image in refused:
            return _conflict("cpu_policy", of_flavor, of_image)
        return of_flavor or of_image or ("dedicated" if named else "shared")

    def _wrong_policy(self, key: str) -> SpecInvalid:
        """The policy, where amounts are named."""
        where, texts = ("hw:cpu_policy", self._specs)
        if where not in texts:
            where, texts = ("hw_cpu_policy", self._properties)
        accepted = f"left out beside {key}={self._specs[key]}: use one or the other"
        return _invalid(where, texts[where], accepted)

    def find_wrong_cpus(self) -> SpecInvalid | None:
        policy = self._read_policy()
        if isinstance(policy, SpecInvalid):
            return policy
        named = [key for name in (DEDICATED, "VCPU") for key, _ in find_named(self._specs, name)]
        if named and any(_both("cpu_policy", self._specs, self._properties)):
            return self._wrong_policy(named[0])
        trait = _find_thread_trait(self._specs, self._properties)
        if trait is not None and policy == "shared":
            return _invalid(*trait, "left out: the cpu policy is shared, and no cpu is dedicated")
        return None

    def _read_dedicated(self, policy: str) -> frozenset[int] | SpecInvalid:
        """The guest cpus that are dedicated."""
        cpus = frozenset(range(self._size.vcpus))
        mask = self._specs.get("hw:cpu_dedicated_mask")
        if mask is None:
            if policy == "mixed":
                where = "hw:cpu_policy" if "hw:cpu_policy" in self._specs else "hw_cpu_policy"
                return _invalid(where, policy, "given with hw:cpu_dedicated_mask: which cpus are dedicated")
            return cpus if policy == "dedicated" else frozenset()
        if policy != "mixed":
            return _invalid("hw:cpu_dedicated_mask", mask, f"left out: the cpu policy is {policy}, not mixed")
        dedicated = read_cpu_list(mask, cpus)
        if not dedicated or not dedicated < cpus:
            accepted = f"some of the cpus 0 to {len(cpus) - 1}, and not all of them"
            return _invalid("hw:cpu_dedicated_mask", mask, accepted)
        return dedicated

    def _read_threads(self, is_dedicated: bool) -> str | SpecInvalid:
        of_flavor, of_image = _both("cpu_thread_policy", self._specs, self._properties)
        if of_flavor not in (None, "prefer") and of_image not in (None, of_flavor):
            return _conflict("cpu_thread_policy", of_flavor, of_image)
        chosen = _choose_threads(self._specs, self._properties)
        if chosen is None:
            return read_threads(self._specs, self._properties) if is_dedicated else "prefer"
        key = "hw:cpu_thread_policy" if chosen == of_flavor else "hw_cpu_thread_policy"
        if not is_dedicated:
            return _invalid(key, chosen, "left out: the cpu policy is shared, and no cpu is dedicated")
        trait = _find_thread_trait(self._specs, self._properties)
        return chosen if trait is None else _invalid(key, chosen, f"left out, or {'='.join(trait)}: not both")

    def _read_emulator(self, is_dedicated: bool) -> int | SpecInvalid:
        policy = self._specs.get("hw:emulator_threads_policy")
        if policy != "isolate":
            return 0
        if not is_dedicated:
            accepted = "share or left out: the cpu policy is shared, and no cpu is dedicated"
            return _invalid("hw:emulator_threads_policy", policy, accepted)
        return 1

    # -- cells ----------------------------------------------------------------------------------

    def _read_nodes(self) -> int | SpecInvalid | None:
        of_flavor, of_image = _both("numa_nodes", self._specs, self._properties)
        if of_flavor is not None and of_image is not None:
            return _conflict("numa_nodes", of_flavor, of_image, "left out")
        given = of_flavor or of_image
        if given is None:
            listed = next(_lists_in(self._specs, self._properties), None)
            if listed is not None:
                return _invalid(*listed, f"left out, or given with {_key_beside(listed[0])}")
            return None
        return int(given)

    def _read_cells(self, count: int, dedicated: frozenset[int]) -> tuple[GuestCell, ...] | SpecInvalid:
        vcpus, memory_mb = self._size.vcpus, self._size.memory_mb
        cpus_listed = self._read_list("numa_cpus", lambda text: read_cpu_list(text, frozenset(range(vcpus))))
        memory_listed = self._read_list("numa_mem", int)
        if isinstance(cpus_listed, SpecInvalid):
            return cpus_listed
        if isinstance(memory_listed, SpecInvalid):
            return memory_listed
        if not cpus_listed and not memory_listed:
            if vcpus % count or memory_mb % count:
                accepted = (
                    f"a number that divides {vcpus} cpus and {memory_mb} MB of memory, or given with "
                    "numa_cpus.N and numa_mem.N of each cell"
                )
                key, value = self._numa_nodes()
                return _invalid(key, value, accepted)
            each = vcpus // count
            cpus_listed = {n: frozenset(range(n * each, (n + 1) * each)) for n in range(count)}
            memory_listed = dict.fromkeys(range(count), memory_mb // count)
        wrong = self._wrong_lists(count, cpus_listed, memory_listed)
        if wrong is not None:
            return wrong
        return tuple(
            GuestCell(cpus_listed[n], cpus_listed[n] & dedicated, memory_listed[n]) for n in range(count)
        )

    def _read_list(self, name: str, read: Callable[[str], T]) -> dict[int, T] | SpecInvalid:
        """The values of keys such as ``hw:numa_cpus.0``, by the number of the cell."""
        of_flavor = _numbered(f"hw:{name}.", self._specs)
        of_image = _numbered(f"hw_{name}.", self._properties)
        if of_flavor and of_image:
            (number, value), (_, other) = min(of_image.items()), min(of_flavor.items())
            accepted = f"left out: the flavor has hw:{name}.{min(of_flavor)}={other}"
            return _invalid(f"hw_{name}.{number}", value, accepted)
        return {number: read(value) for number, value in sorted((of_flavor or of_image).items())}

    def _wrong_lists(
        self, count: int, cpus: dict[int, frozenset[int]], memory: dict[int, int]
    ) -> SpecInvalid | None:
        """Whether the lists name each cell, and all cpus and memory there are, once."""
        key, value = self._numa_nodes()
        for name, numbers in (("numa_cpus", cpus), ("numa_mem", memory)):
            if sorted(numbers) != list(range(count)):
                there = ", ".join(map(str, numbers)) or "none"
                accepted = f"given with {name}.N of each cell, 0 to {count - 1}; there is {there}"
                return _invalid(key, value, accepted)
        listed = [cpu for each in cpus.values() for cpu in each]
        if sorted(listed) != list(range(self._size.vcpus)):
            twice = sorted({cpu for cpu in listed if listed.count(cpu) > 1})
            missing = sorted(set(range(self._size.vcpus)) - set(listed))
            wrong = f"the flavor has {self._size.vcpus}, and no cpu {max(listed, default=0)}"
            if twice or missing:
                wrong = f"cpu {twice[0]} is in two of them" if twice else f"cpu {missing[0]} is in none"
            return self._wrong_list("numa_cpus", f"lists that have each cpu once; {wrong}")
        if sum(memory.values()) != self._size.memory_mb:
            accepted = (
                f"{self._size.memory_mb} MB in all, as the flavor has; there are {sum(memory.values())}"
            )
            return self._wrong_list("numa_mem", accepted)
        return None

    def _wrong_list(self, name: str, accepted: str) -> SpecInvalid:
        for prefix, texts in (("hw:", self._specs), ("hw_", self._properties)):
            listed = _numbered(f"{prefix}{name}.", texts)
            if listed:
                said = " ".join(value for _, value in sorted(listed.items()))
                return _invalid(f"{prefix}{name}.0 to .{max(listed)}", said, accepted)
        raise AssertionError("a list that was read is there")

    def _numa_nodes(self) -> tuple[str, str]:
        of_flavor = self._specs.get("hw:numa_nodes")
        if of_flavor is not None:
            return "hw:numa_nodes", of_flavor
        return "hw_numa_nodes", self._properties.get("hw_numa_nodes", "not given")

    # -- pages ----------------------------------------------------------------------------------

    def _read_pages(self) -> tuple[int, ...] | SpecInvalid | None:
        of_flavor, of_image = _both("mem_page_size", self._specs, self._properties)
        if of_image is not None and of_flavor not in ("large", "any"):
            return _conflict("mem_page_size", of_flavor, of_image, "left out, or the flavor's large or any")
        given = of_image or of_flavor
        if given is None:
            return None
        return read_page_sizes(given)

    def _fitting_pages(
        self, sizes: tuple[int, ...], cells: tuple[GuestCell, ...]
    ) -> tuple[int, ...] | SpecInvalid:
        """The sizes that the memory of each cell can be made of."""
        fitting = tuple(
            size for size in sizes if not size or all(cell.memory_mb * 1024 % size == 0 for cell in cells)
        )
        if fitting:
            return fitting
        key = "hw:mem_page_size" if "hw:mem_page_size" in self._specs else "hw_mem_page_size"
        given = self._properties.get("hw_mem_page_size") or self._specs.get("hw:mem_page_size") or ""
        memory = ", ".join(str(mb) for mb in dict.fromkeys(cell.memory_mb for cell in cells))
        return _invalid(key, given, f"a size that divides the memory of each cell: {memory} MB")


# -- values -------------------------------------------------------------------------------------


def read_page_sizes(text: str) -> tuple[int, ...]:
    """The sizes in KiB that a value of ``mem_page_size`` lets have, in order; none if it is not one."""
    if text in _PAGE_CHOICES:
        return _PAGE_CHOICES[text]
    match = _PAGE_SIZE.fullmatch(text)
    number = int(match[1]) * _KB[match[2]] if match else int(text) if _AMOUNT.fullmatch(text) else 0
    return (number,) if number in PAGES else ()


def read_cpu_list(text: str, everything: frozenset[int] = frozenset()) -> frozenset[int]:
    """The cpus that a list such as ``0-3,6,^2`` names; one that only leaves some out names all others of
    ``everything``. None if it is no such list."""
    parts = [part.strip() for part in text.split(",")]
    if not all(map(_CPU_RANGE.fullmatch, parts)):
        return frozenset()
    given: set[int] = set()
    left_out: set[int] = set()
    for part in parts:
        low, _, high = part.lstrip("^").partition("-")
        if int(high or low) < int(low) or int(high or low) >= CPUS_MAX:
            return frozenset()
        (left_out if part.startswith("^") else given).update(range(int(low), int(high or low) + 1))
    if parts[0].startswith("^"):
        given.update(everything)
    return frozenset(given - left_out)


def _both(
    name: str, specs: Mapping[str, str], properties: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """What a flavor and what an image say."""
    return specs.get(f"hw:{name}"), properties.get(f"hw_{name}")


def _choose_threads(specs: Mapping[str, str], properties: Mapping[str, str]) -> str | None:
    """The thread policy that is named. An image may want more than the flavor prefers."""
    of_flavor, of_image = _both("cpu_thread_policy", specs, properties)
    return of_image if of_flavor == "prefer" and of_image is not None else of_flavor or of_image


def _find_thread_trait(specs: Mapping[str, str], properties: Mapping[str, str]) -> tuple[str, str] | None:
    """The trait that stands for a thread policy, of the guest or of a group of it."""
    texts = (*specs.items(), *properties.items())
    return next((pair for pair in texts if re.fullmatch(f"trait[^:]*:{HYPERTHREADING}", pair[0])), None)


def _same_in_both(
    name: str, specs: Mapping[str, str], properties: Mapping[str, str]
) -> str | SpecInvalid | None:
    of_flavor, of_image = _both(name, specs, properties)
    if of_flavor is not None and of_image not in (None, of_flavor):
        return _conflict(name, of_flavor, of_image)
    return of_flavor or of_image


def _numbered(prefix: str, texts: Mapping[str, str]) -> dict[int, str]:
    found = {key.removeprefix(prefix): value for key, value in texts.items() if key.startswith(prefix)}
    return {int(number): value for number, value in found.items() if number.isdecimal()}


def _lists_in(specs: Mapping[str, str], properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key, value in (*specs.items(), *properties.items()):
        if re.fullmatch(r"hw[:_]numa_(cpus|mem)\..*", key):
            yield key, value


def _key_beside(key: str) -> str:
    return f"{key[:3]}numa_nodes"


def _conflict(name: str, of_flavor: str | None, of_image: str | None, accepted: str = "") -> SpecInvalid:
    said = "the flavor has none" if of_flavor is None else f"the flavor has hw:{name}={of_flavor}"
    return _invalid(f"hw_{name}", of_image, f"{accepted or of_flavor}: {said}")


def _invalid(key: str, value: str | None, accepted: str) -> SpecInvalid:
    return SpecInvalid(key, value or "", accepted)
