"""Changes of records, for commands: put a record in place of what stands there now, remove it, number it."""

from berth.model.events import AnyRecord, RecordChanged
from berth.model.servers import Counter
from berth.view import View


def replace_record(view: View, after: AnyRecord) -> RecordChanged:
    """The change that puts a record in place of what stands there now."""
    return RecordChanged(view.records.current(after), after)


def remove_record(view: View, record: AnyRecord) -> RecordChanged:
    """The change that removes a record."""
    return RecordChanged(view.records.current(record), None)


def next_number(view: View, kind: str) -> Counter:
    """The counter of a kind, one further. No number is given twice."""
    last = view.records.get(Counter, kind)
    return Counter(id=kind, value=1 if last is None else last.value + 1)
