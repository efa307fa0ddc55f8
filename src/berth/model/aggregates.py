"""What an aggregate is, beyond the uuid that providers know it by."""

import msgspec


class Label(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """``kind`` makes the aggregate a domain, such as a rack, a zone or a cell; ``name`` is what people call
    it, once among those of its kind. ``metadata`` is what flavors may ask for, in the order of its keys."""

    kind: str | None
    name: str | None
    metadata: tuple[tuple[str, str], ...] = ()
