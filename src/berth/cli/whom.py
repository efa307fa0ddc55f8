"""Whom a command is to ask, and as whom: from its arguments, or from the folder of ``berth up``."""

import argparse

from berth.cli.folder import Folder, FolderError
from berth.cli.secrets import SecretError, needed

__all__ = ["FolderError", "SecretError", "whom"]


def whom(arguments: argparse.Namespace, role: str) -> tuple[str, str]:
    """The region's URL, and a token of a user with a role; FolderError or SecretError if there is none."""
    if arguments.data is not None:
        folder = Folder(arguments.data)
        return folder.running().url, folder.secrets().admin
    what = f"a token that the region knows, of a user with the role {role}"
    return arguments.url, needed("BERTH_TOKEN", arguments.token_file, "--token-file", what)
