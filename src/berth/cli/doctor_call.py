"""``berth doctor``, as the command line has it: the doctor is asked, and its status is the command's."""

import argparse
import asyncio
import sys

from berth.cli import doctor
from berth.cli.whom import FolderError, SecretError, region_client


def run(arguments: argparse.Namespace) -> int:
    """The doctor's status; 2 when nobody can be asked."""
    try:
        client = region_client(arguments, "admin")
    except (FolderError, SecretError) as error:
        print(f"berth: {error}", file=sys.stderr)
        return 2
    return asyncio.run(doctor.run(client, repair=arguments.repair, yes=arguments.yes))
