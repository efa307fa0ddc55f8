"""Numbers of things, as sentences have them."""


def count(number: int, one: str, many: str | None = None) -> str:
    """A number and its noun: 1 host, 2 hosts. ``many``: where it is not the noun with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
