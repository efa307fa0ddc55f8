"""The state in memory that follows from the journal: numbers in columns, the rest in records and maps.

``View.apply`` is the only way in. The view knows no rules: it does what an event says and checks only
that the event fits the state it claims to follow.
"""

from berth.view.consumers import ConsumerRecord
from berth.view.provider import ProviderRecord, TreeShape
from berth.view.sets import Mask
from berth.view.view import UNLIMITED, OutOfSteps, Trial, View

__all__ = [
    "UNLIMITED",
    "ConsumerRecord",
    "Mask",
    "OutOfSteps",
    "ProviderRecord",
    "TreeShape",
    "Trial",
    "View",
]
