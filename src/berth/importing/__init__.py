"""Import of a Placement database into an empty journal: all of it is read and checked, then written."""

from berth.importing.events import ConvertedSource, convert_source
from berth.importing.report import ImportFindings, findings_text
from berth.importing.target import append_all, count_rows, differs, refuse_unless_empty, table_text
from berth.importing.upstream import CannotImport, PlacementDatabase, Source, placement_address

__all__ = [
    "CannotImport",
    "ConvertedSource",
    "ImportFindings",
    "PlacementDatabase",
    "Source",
    "append_all",
    "convert_source",
    "count_rows",
    "differs",
    "findings_text",
    "placement_address",
    "refuse_unless_empty",
    "table_text",
]
