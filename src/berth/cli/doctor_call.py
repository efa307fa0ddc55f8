"""Whom ``berth doctor`` is to ask, and as whom: from its arguments, or from the folder of ``berth up``."""

import argparse
import sys

from berth.cli import doctor
from berth.cli.folder import Folder, FolderError
from berth.cli.secrets import SecretError, needed


def run(arguments: argparse.Namespace) -> int:
    """The doctor's status; 2 when nobody can be asked."""
    try:
        url, token = _whom(arguments)
    except (FolderError, SecretError) as error:
        print(f"berth: {error}", file=sys.stderr)
        return 2
    return doctor.run(url, token, repair=arguments.repair, yes=arguments.yes)


def _whom(arguments: argparse.Namespace) -> tuple[str, str]:
    if arguments.data is not None:
        folder = Folder(arguments.data)
        return folder.running().url, folder.secrets().admin
    what = "a token that the region knows, of a user with the role admin"
    return arguments.url, needed("BERTH_TOKEN", arguments.token_file, "--token-file", what)
