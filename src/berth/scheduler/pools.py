"""Which roots are pools, and no hosts: providers that are there for others to use."""

from typing import Final

from berth.model.vocabulary import SHARES_VIA_AGGREGATE
from berth.view import ProviderRecord, View

_OF_A_HOST: Final = ("VCPU", "PCPU")
"""A host that lets others use its disk is still a host."""


def is_pool(view: View, record: ProviderRecord) -> bool:
    """Whether it shares what it has through aggregates, stands alone, and runs nothing itself."""
    if record.parent is not None or record.children or SHARES_VIA_AGGREGATE not in record.traits:
        return False
    return not any(view.classes.name_of(id) in _OF_A_HOST for id in record.inventories)
