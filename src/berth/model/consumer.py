"""Who holds resources, and what it holds."""

import msgspec

from berth.model.ids import ClassId, ProviderId


class Consumer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A consumer's record. ``type`` is None for one last written before consumers had types. ``made_by`` says
    which part of Berth made it, where it is not the consumer's owner: see ``Claim``."""

    generation: int
    project: str
    user: str
    type: str | None
    created_at_s: int
    updated_at_s: int
    made_by: str = ""


Amounts = tuple[tuple[ClassId, int], ...]
"""How much of which classes; each class at most once."""

Holding = tuple[ProviderId, Amounts]
"""What is held on one provider: amounts by resource class."""

Holdings = tuple[Holding, ...]
"""All that one consumer holds; each provider at most once, each class at most once within it."""

Wanted = tuple[ProviderId, tuple[tuple[str, int], ...]]
"""What is wanted, or held, on one provider: amounts by the name of the resource class."""
