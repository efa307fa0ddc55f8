"""A consumer as a view holds it."""

import msgspec

from berth.model.placement import Consumer, Holdings


class ConsumerRecord(msgspec.Struct, gc=False):
    """A consumer and what it holds. There may be millions, so the garbage collector is not told of them."""

    consumer: Consumer
    held: Holdings
