"""Who may read what holds a secret: its owner, and nobody else."""

import os
import stat
from pathlib import Path
from typing import IO, Any, Final

OF_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def refuse_others(path: Path | str, file: IO[Any]) -> str | None:
    """Why an open file cannot hold a secret, in words for the operator; None if it can."""
    mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    if mode & OF_OTHERS:
        return f"{path}: others than its owner may use it (mode {mode:04o}); run: chmod 600 {path}"
    return None


def keep_files_private() -> None:
    """Let this process, and those that it starts, create files and folders for their owner alone."""
    os.umask(OF_OTHERS)
