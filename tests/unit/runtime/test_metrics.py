"""Numbers of several workers in one memory."""

import pytest

from berth.runtime import metrics
from berth.runtime.metrics import Family, Metrics, MetricsMemory

pytestmark = pytest.mark.fast

COUNT = Family("count", "Things.", "counter", ("kind",))
DEPTH = Family("depth", "Waiting.", "gauge")
INDEX = Family("index", "How far.", "gauge", merge="max")
EACH = Family("each", "Of each.", "gauge", merge="each")
SECONDS = Family("seconds", "How long.", "histogram", (), (1.0, 2.0))
FAMILIES = (COUNT, DEPTH, INDEX, EACH, SECONDS)


def show(one: Metrics) -> dict[str, float]:
    return {
        sample.name
        + "".join(sorted(f" {name}={value}" for name, value in sample.labels.items())): sample.value
        for metric in one.collect()
        for sample in metric.samples
    }


def test_all_show_what_all_have_counted() -> None:
    memory = MetricsMemory(2)
    first, second = (Metrics(FAMILIES, memory, number) for number in (1, 2))
    first.value(COUNT, "a").add()
    second.value(COUNT, "a").add(2)
    second.value(COUNT, "b").add()
    for one, amount in ((first, 3), (second, 5)):
        one.value(DEPTH).set(amount)
        one.value(INDEX).set(amount)
        one.value(EACH).set(amount)
        one.distribution(SECONDS).add(amount - 2)
    shown = show(first)
    assert show(second) == shown
    assert shown == {
        "count_total kind=a": 3,
        "count_total kind=b": 1,
        "depth": 8,
        "index": 5,
        "each worker=1": 3,
        "each worker=2": 5,
        "seconds_bucket le=1.0": 1,
        "seconds_bucket le=2.0": 1,
        "seconds_bucket le=+Inf": 2,
        "seconds_count": 2,
        "seconds_sum": 4,
    }


def test_a_worker_goes_on_where_the_one_before_has_ended() -> None:
    memory = MetricsMemory(1)
    first = Metrics(FAMILIES, memory)
    first.value(COUNT, "a").add(7)
    first.value(DEPTH).set(3)
    first.distribution(SECONDS).add(1.5)
    second = Metrics(FAMILIES, memory)
    shown = show(second)
    assert (shown["count_total kind=a"], shown["seconds_count"]) == (7, 1)
    assert shown["depth"] == 0, "what waited has died with it"
    second.value(COUNT, "a").add()
    second.value(COUNT, "b").add()
    shown = show(second)
    assert (shown["count_total kind=a"], shown["count_total kind=b"]) == (8, 1)


def test_more_than_there_is_room_for_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metrics, "NUMBERS_MAX", 3)
    one = Metrics(FAMILIES)
    for number in range(5):
        one.value(COUNT, str(number)).add()
    assert sum(name.startswith("count_total") for name in show(one)) == 3
    assert caplog.text.count("there is no room for more metrics") == 1
