"""What is measured, as data: the files in ``workloads/`` and the types they are read into.

A workload is a fleet, what is asked of it, and by how many clients at a time. ``smallest`` is the same
workload at a size that runs as a test, where the answers are checked and the time is not.
"""

from pathlib import Path
from typing import Final

import msgspec

FOLDER: Final = Path(__file__).with_name("workloads")


class Flat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="flat", tag_field="kind"):
    """Hosts without children, as OpenStack's placeload makes them."""

    hosts: int


class Nested(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="nested", tag_field="kind"):
    """Hosts as trees of seven, as OpenStack's nested perfload job makes them."""

    hosts: int


class Wide(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="wide", tag_field="kind"):
    """Hosts with many identical children."""

    hosts: int
    children: int


class Devices(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="devices", tag_field="kind"):
    """Hosts with two NUMA cells of 64 processors, 4 GPUs and 4 network cards each: 19 providers."""

    hosts: int


Fleet = Flat | Nested | Wide | Devices


class CandidateQuery(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="candidates", tag_field="kind"
):
    """GET /allocation_candidates; ``answers`` is how many a right answer holds."""

    query: str
    answers: int


class Granular(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="granular", tag_field="kind"):
    """GET /allocation_candidates with a number of groups that all want the same: one VGPU."""

    groups: int
    group_policy: str
    limit: int
    answers: int

    @property
    def query(self) -> str:
        groups = "&".join(f"resources{number}=VGPU:1" for number in range(1, self.groups + 1))
        return f"{groups}&group_policy={self.group_policy}&limit={self.limit}"


class Accelerated(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="accelerated", tag_field="kind"
):
    """GET /allocation_candidates for guests of some NUMA cells, each with processors of its own and so many
    GPUs beside it, and a port of a network card for every GPU."""

    cells: int
    gpus: int
    """Of each cell."""
    answers: int

    @property
    def query(self) -> str:
        groups = ["resources=DISK_GB:100"]
        for cell in range(self.cells):
            groups.append(f"resources_CELL{cell}=PCPU:8,MEMORY_MB:65536&required_CELL{cell}=HW_NUMA_ROOT")
            beside = [f"_CELL{cell}"]
            for gpu in range(self.gpus):
                name = f"{cell}_{gpu}"
                groups.append(f"resources_GPU{name}=PGPU:1&resources_NIC{name}=SRIOV_NET_VF:1")
                beside += [f"_GPU{name}", f"_NIC{name}"]
            if self.gpus:
                groups.append(f"same_subtree={','.join(beside)}")
        policy = "none" if self.gpus else "isolate"
        return f"{'&'.join(groups)}&group_policy={policy}&limit=10"


class Claims(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="claims", tag_field="kind"):
    """PUT /allocations for a new consumer every time, on any of the first ``hosts`` hosts."""

    hosts: int


class Cycles(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="cycles", tag_field="kind"):
    """GET /allocation_candidates, then PUT /allocations of one of the answers for a new consumer."""

    query: str
    answers: int


class Moves(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="moves", tag_field="kind"):
    """POST /allocations that moves two consumers among the first ``hosts`` hosts, as a migration does."""

    hosts: int


class Mixed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="mixed", tag_field="kind"):
    """What a compute service asks about its host, with claims in between, on the first ``hosts`` hosts."""

    hosts: int
    reads_percent: int


Request = CandidateQuery | Granular | Accelerated | Claims | Cycles | Moves | Mixed
Searches = CandidateQuery | Granular | Accelerated | Cycles
Reads = CandidateQuery | Granular | Accelerated


class Smallest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fleet: Fleet
    request: Request


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    fleet: Fleet
    request: Request
    concurrency: int
    smallest: Smallest
    aim: int | None = None
    """How many times less than upstream an operation shall cost, at least."""
    seconds: float = 3
    """How long to send; every client finishes the operation it has begun."""
    rounds: int = 3
    """How often it is measured on every side; the middle one counts. One second of these machines is not like
    another."""
    deadline_s: float = 60
    """How long a server may take for one answer, before it is taken not to give one."""
    hostile: bool = False
    """Whether a server may be expected to die of it. Then it runs within a memory limit."""
    name: str = ""

    @property
    def writes(self) -> bool:
        return not isinstance(self.request, Reads)


def read(path: Path) -> Workload:
    workload = msgspec.toml.decode(path.read_bytes(), type=Workload)
    return msgspec.structs.replace(workload, name=path.stem)


def all_workloads() -> list[Workload]:
    return [read(path) for path in sorted(FOLDER.glob("*.toml"))]
