"""Metadata of servers and of images: names and values, all at once or one by one. Both have the same routes,
and differ in who may change them and in what is done then."""

from collections.abc import Callable

from berth.api.kernel.call import Call, json
from berth.api.kernel.http import Response
from berth.api.kernel.problem import Problem
from berth.model.rejections import MetadataItemNotFound, Rejection

Items = dict[str, str]
Change = Callable[[Items], Items | Rejection]


def respond_item(call: Call, items: Items) -> Response:
    """The item that the URI names."""
    key = call.params[1]
    if key not in items:
        raise call.problem_of(MetadataItemNotFound(key))
    return json({"meta": {key: items[key]}})


def check_named(call: Call, asked: Items) -> None:
    """Refuse a body without the item that the URI names."""
    key = call.params[1]
    if key not in asked:
        raise Problem(400, f"The body and the URI do not name the same item: {key} is in the URI.")


def make_removal(call: Call) -> Change:
    """What removes the item that the URI names."""
    key = call.params[1]

    def remove(before: Items) -> Items | Rejection:
        if key not in before:
            return MetadataItemNotFound(key)
        return {name: value for name, value in before.items() if name != key}

    return remove
