"""Export of the ledger into an empty database of OpenStack Placement 16.0: the way back."""

from berth.exporting.rows import count_unplaced
from berth.exporting.target import CannotExport, TableCount, Target, differs

__all__ = ["CannotExport", "TableCount", "Target", "count_unplaced", "differs"]
