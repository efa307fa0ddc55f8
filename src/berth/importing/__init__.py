"""Bringing a Placement database over into an empty ledger: read, judged whole, then written."""

from berth.importing.errors import CannotImport
from berth.importing.events import Transcript, transcribe
from berth.importing.findings import Findings
from berth.importing.progress import Progress
from berth.importing.report import differs, findings_text, table_text
from berth.importing.target import append_all, refuse_unless_empty
from berth.importing.upstream import Source, source_address

__all__ = [
    "CannotImport",
    "Findings",
    "Progress",
    "Source",
    "Transcript",
    "append_all",
    "differs",
    "findings_text",
    "refuse_unless_empty",
    "source_address",
    "table_text",
    "transcribe",
]
