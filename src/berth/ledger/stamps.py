"""The version of a provider: how a change advances it, and how a writer proves what it last saw."""

from berth.model.events import ProviderStamped, Stamp
from berth.model.ids import ProviderId
from berth.model.rejections import ProviderGenerationConflict, ProviderNotFound, Rejection
from berth.view import ProviderRecord, View


def advanced(record: ProviderRecord, now_s: int, steps: int = 1) -> ProviderStamped:
    """The event that advances a provider's generation (by none, when only its name changed)."""
    before = record.stamp
    return ProviderStamped(record.id, before, Stamp(before.generation + steps, before.created_at_s, now_s))


def provider_at(view: View, id: ProviderId, generation: int | None) -> ProviderRecord | Rejection:
    """The provider, if it exists and is still at the generation its writer names (if it names one)."""
    record = view.providers.get(id)
    if record is None:
        return ProviderNotFound(id)
    if generation is not None and generation != record.generation:
        return ProviderGenerationConflict(id, record.generation, generation)
    return record
