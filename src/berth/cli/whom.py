"""Which region a command asks, and as whom: from its arguments, or from the folder of ``berth up``."""

import argparse

from berth.cli.folder import Folder, FolderError
from berth.cli.secrets import SecretError, needed
from berth.client import Client

__all__ = ["FolderError", "SecretError", "region_client"]


def region_client(arguments: argparse.Namespace, role: str) -> Client:
    """A client of the region, with a token of a user with a role; FolderError or SecretError without one."""
    if arguments.data is not None:
        folder = Folder(arguments.data)
        return Client(folder.running().url, {"x-auth-token": folder.secrets().admin})
    what = f"a token that the region knows, of a user with the role {role}"
    token = needed("BERTH_TOKEN", arguments.token_file, "--token-file", what)
    return Client(arguments.url, {"x-auth-token": token}, ca_file=arguments.ca_file)
