"""The numbers that the workers of a server count, in memory that they share.

The naive design counts in each worker, and whichever worker answers ``/metrics`` shows its own numbers: they
jump from one request to the next, and those of a worker that is replaced begin at zero. Asking the others
over a socket costs a round trip to each, and one that hangs does not answer. Here every worker counts in a
part of its own of one memory, which its parent has made before it forked; whoever renders reads all parts and
adds them up. A worker that dies leaves its part behind, and the one that replaces it goes on counting there:
counters never go back. (docs/decisions/035-metrics-of-all-workers.md)

    part:  length of keys | keys: (family, labels, how many numbers) one after the other | numbers

One process writes a part, by one thread; others only read it. A key counts once the length says so, and is
never changed. Families are declared in code, and are the same in every process.
"""

import functools
import logging
import mmap
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec
from prometheus_client import ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

NUMBERS_MAX: Final = 32_768
"""How many numbers a worker may count. What is beyond is not shown."""
_KEYS_BYTES: Final = 4 << 20
_LENGTH: Final = struct.Struct("=Q")
_FRAME: Final = struct.Struct("=I")
_PART_BYTES: Final = _LENGTH.size + _KEYS_BYTES + 8 * NUMBERS_MAX

Labels = tuple[str, ...]

_log = logging.getLogger(__name__)


class Family(NamedTuple):
    """What is counted. Of several workers ``sum`` adds the numbers up, ``max`` takes the largest, and
    ``each`` shows all of them, by the label ``worker``."""

    name: str
    help: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: Labels = ()
    buckets: tuple[float, ...] = ()
    merge: Literal["sum", "max", "each"] = "sum"

    @property
    def width(self) -> int:
        """How many numbers one combination of labels has: a histogram has its buckets, what is beyond them,
        and the sum."""
        return len(self.buckets) + 2 if self.kind == "histogram" else 1


class _Key(msgspec.Struct, array_like=True):
    family: str
    labels: Labels
    width: int


class MetricsMemory:
    """The parts of so many workers. Made before they are forked."""

    def __init__(self, workers: int = 1) -> None:
        memory = memoryview(mmap.mmap(-1, workers * _PART_BYTES))
        self._parts = [memory[start : start + _PART_BYTES] for start in range(0, len(memory), _PART_BYTES)]

    def part(self, number: int) -> memoryview:
        """That of the worker of a number, from 1 on."""
        return self._parts[number - 1]

    @property
    def numbers(self) -> range:
        return range(1, len(self._parts) + 1)


class Value:
    """One number of this worker."""

    __slots__ = ("_at", "_numbers")

    def __init__(self, numbers: "memoryview[float]", at: int) -> None:
        self._numbers = numbers
        self._at = at

    def add(self, amount: float = 1) -> None:
        self._numbers[self._at] += amount

    def set(self, value: float) -> None:
        self._numbers[self._at] = value


class Distribution:
    """A histogram of this worker."""

    __slots__ = ("_at", "_buckets", "_numbers")

    def __init__(self, numbers: "memoryview[float]", at: int, buckets: tuple[float, ...]) -> None:
        self._numbers = numbers
        self._at = at
        self._buckets = buckets

    def add(self, value: float) -> None:
        number = 0
        for bound in self._buckets:
            if value <= bound:
                break
            number += 1
        self._numbers[self._at + number] += 1
        self._numbers[self._at + len(self._buckets) + 1] += value


class Metrics(Collector):
    """The metrics of one worker, which adds to its own and shows those of all. Without a ``memory`` it is
    alone."""

    def __init__(
        self, families: Sequence[Family], memory: MetricsMemory | None = None, number: int = 1
    ) -> None:
        self._families = {family.name: family for family in families}
        self._memory = memory or MetricsMemory()
        self._part = _WorkerPart(self._memory.part(number))
        self._part.begin_again(self._families)
        self._is_full = False

    def value(self, family: Family, *labels: str) -> Value:
        """The number of a counter or a gauge. Look it up once."""
        return Value(*self._find(family, labels))

    def distribution(self, family: Family, *labels: str) -> Distribution:
        return Distribution(*self._find(family, labels), family.buckets)

    def _find(self, family: Family, labels: Labels) -> "tuple[memoryview[float], int]":
        assert len(labels) == len(family.labels), f"{family.name} has the labels {family.labels}"
        at = self._part.find_or_add(family, labels)
        if at is not None:
            return self._part.numbers, at
        if not self._is_full:
            self._is_full = True
            _log.warning("there is no room for more metrics: %s and later ones are not shown", family.name)
        return memoryview(bytearray(8 * family.width)).cast("d"), 0

    def read_each(self, family: Family) -> dict[int, float]:
        """The number of a family without labels, by worker, as far as they have one."""
        found = {number: self._read(number).get((family.name, ())) for number in self._memory.numbers}
        return {number: values[0] for number, values in found.items() if values is not None}

    def collect(self) -> Iterator[Metric]:
        """What all workers have counted."""
        parts = {number: self._read(number) for number in self._memory.numbers}
        for family in self._families.values():
            merged = _merge(family, parts)
            if merged or not family.labels:
                yield _make_metric(family, merged)

    def _read(self, number: int) -> "dict[tuple[str, Labels], Sequence[float]]":
        return _WorkerPart(self._memory.part(number)).read()


class _WorkerPart:
    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._keys = memory[_LENGTH.size : _LENGTH.size + _KEYS_BYTES]
        self.numbers = memory[_LENGTH.size + _KEYS_BYTES :].cast("d")
        self._known: dict[tuple[str, Labels], int] = {}
        self._next = 0

    def begin_again(self, families: dict[str, Family]) -> None:
        """Go on where the worker before has ended. Its gauges are not true any more."""
        for key, at in self._walk():
            self._known[key.family, key.labels] = at
            self._next = at + key.width
            family = families.get(key.family)
            if family is not None and family.kind == "gauge":
                self.numbers[at] = 0.0

    def find_or_add(self, family: Family, labels: Labels) -> int | None:
        """Where the numbers begin; None if there is no room for them."""
        at = self._known.get((family.name, labels))
        if at is not None:
            return at
        encoded = msgspec.msgpack.encode(_Key(family.name, labels, family.width))
        [length] = _LENGTH.unpack_from(self._memory)
        end = length + _FRAME.size + len(encoded)
        if end > _KEYS_BYTES or self._next + family.width > NUMBERS_MAX:
            return None
        _FRAME.pack_into(self._keys, length, len(encoded))
        self._keys[length + _FRAME.size : end] = encoded
        # Last: before that, others do not see it.
        _LENGTH.pack_into(self._memory, 0, end)
        at = self._known[family.name, labels] = self._next
        self._next += family.width
        return at

    def read(self) -> "dict[tuple[str, Labels], Sequence[float]]":
        return {
            (key.family, key.labels): self.numbers[at : at + key.width].tolist() for key, at in self._walk()
        }

    def _walk(self) -> Iterator[tuple[_Key, int]]:
        [length] = _LENGTH.unpack_from(self._memory)
        start, at = 0, 0
        while start < length:
            [size] = _FRAME.unpack_from(self._keys, start)
            start += _FRAME.size
            key = msgspec.msgpack.decode(self._keys[start : start + size], type=_Key)
            yield key, at
            start += size
            at += key.width


def _merge(
    family: Family, parts: "dict[int, dict[tuple[str, Labels], Sequence[float]]]"
) -> dict[Labels, list[float]]:
    merged: dict[Labels, list[float]] = {}
    for number, part in parts.items():
        for (name, labels), values in part.items():
            if name != family.name or len(values) != family.width:
                continue
            if family.merge == "each":
                labels = (*labels, str(number))
            before = merged.get(labels)
            if before is None:
                merged[labels] = list(values)
            elif family.merge == "max":
                merged[labels] = list(map(max, before, values))
            else:
                merged[labels] = [one + other for one, other in zip(before, values, strict=True)]
    return merged


def _make_metric(family: Family, merged: dict[Labels, list[float]]) -> Metric:
    labels = (*family.labels, "worker") if family.merge == "each" else family.labels
    if not family.labels and family.merge != "each":
        merged = merged or {(): [0.0] * family.width}
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=labels)
        for values, numbers in merged.items():
            histogram.add_metric(values, *_make_buckets(family, numbers))
        return histogram
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=labels)
    for values, [number] in merged.items():
        metric.add_metric(values, number)
    return metric


def _make_buckets(family: Family, numbers: list[float]) -> tuple[list[tuple[str, float]], float]:
    """The numbers of a histogram as Prometheus has them: each bucket counts what is below its bound."""
    *counts, total = numbers
    bounds = [*(str(float(bound)) for bound in family.buckets), "+Inf"]
    below, buckets = 0.0, []
    for bound, count in zip(bounds, counts, strict=True):
        below += count
        buckets.append((bound, below))
    return buckets, total


def show_gauge(family: Family, values: Mapping[Labels, float]) -> Metric:
    """A gauge whose values are known: it was looked at, and not counted."""
    return _make_metric(family, {labels: [value] for labels, value in values.items()})


class WorkerProcesses(Collector):
    """What the system says of the workers' processes. ``pids``: by the number of the worker."""

    def __init__(self, pids: Callable[[], dict[int, float]]) -> None:
        self._pids = pids

    def collect(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for number, pid in self._pids().items():
            for metric in ProcessCollector(registry=None, pid=functools.partial(int, pid)).collect():
                kept = found.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
                for sample in metric.samples:
                    kept.add_sample(sample.name, {**sample.labels, "worker": str(number)}, sample.value)
        yield from found.values()
