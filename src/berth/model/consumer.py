"""Who holds resources, and what it holds."""

import msgspec

from berth.model.ids import ClassId, ProviderId


class Consumer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A consumer's record. ``type`` is None for one last written before consumers had types."""

    generation: int
    project: str
    user: str
    type: str | None
    created_at_s: int
    updated_at_s: int


Holding = tuple[ProviderId, tuple[tuple[ClassId, int], ...]]
"""What is held on one provider: amounts by resource class."""

Holdings = tuple[Holding, ...]
"""All that one consumer holds; each provider at most once, each class at most once within it."""
