"""Which region a command asks, and as whom.

The first of these that is given counts:

    --data DIR                         the region of a 'berth up', as its administrator
    --os-cloud NAME                    a cloud of clouds.yaml
    --token-file FILE, BERTH_TOKEN     a token, at --url or BERTH_URL
    OS_CLOUD, or other OS_* variables  a cloud, as for other OpenStack clients
    ./data                             the folder of a 'berth up', if it is in the current one

Of a cloud Berth's address is the endpoint of placement in the catalog, unless --url or BERTH_URL names
another.
"""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from berth.cli.command import CommandError, add_ca_file, add_token_file, find_secret, url
from berth.cli.folder import Folder
from berth.client import Client, CloudDescription, CloudError, CloudLogin, read_cloud, read_variables
from berth.runtime.settings import BY_NAME

_URL: Final = f"http://{BY_NAME['listen'].default}"
_DATA: Final = Path("data")
_RETRIES: Final = 3
API_VERSIONS: Final = {"openstack-api-version": "compute 2.94,placement 1.39"}
_FOREIGN: Final = ("url", "os_cloud", "token_file", "ca_file")
_WAYS: Final = (
    "Give one of: --os-cloud NAME (or OS_CLOUD, or OS_AUTH_URL and so on), a token in BERTH_TOKEN or "
    "--token-file FILE, or --data DIR of a 'berth up'"
)


def add_region(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("which region, and as whom")
    group.add_argument("--os-cloud", metavar="NAME", help="a cloud of clouds.yaml [OS_CLOUD]")
    group.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        help="folder of a 'berth up': its region, as its administrator [data, if nothing else is given]",
    )
    group.add_argument("--url", metavar="URL", type=url, help=f"the region's address [BERTH_URL, or {_URL}]")
    add_token_file(group, "--token-file", "BERTH_TOKEN")
    add_ca_file(group)


def connect(arguments: argparse.Namespace, environ: Mapping[str, str] | None = None) -> Client:
    """A client of the region that the arguments and the environment name."""
    environ = os.environ if environ is None else environ
    if arguments.data is not None:
        _refuse_beside_data(arguments)
        return _connect_to_folder(arguments.data)
    try:
        return _connect_to_named(arguments, environ)
    except (CloudError, ValueError) as error:
        raise CommandError(str(error)) from error


def _connect_to_named(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Client:
    address = arguments.url or _read_address(environ)
    if arguments.os_cloud is not None:
        return _connect_to_cloud(read_cloud(arguments.os_cloud, environ), address, arguments.ca_file)
    token = find_secret("BERTH_TOKEN", arguments.token_file)
    if token is not None:
        headers = {"x-auth-token": token, **API_VERSIONS}
        return Client(address or _URL, headers, ca_file=arguments.ca_file, retries=_RETRIES)
    named = environ.get("OS_CLOUD")
    cloud = read_cloud(named, environ) if named else read_variables(environ)
    if cloud is not None:
        return _connect_to_cloud(cloud, address, arguments.ca_file)
    if address is None and (_DATA / "up.json").exists():
        return _connect_to_folder(_DATA)
    whose = "no region and no user are named" if address is None else f"no user is named for {address}"
    raise CommandError(f"{whose}. {_WAYS}")


def _read_address(environ: Mapping[str, str]) -> str | None:
    address = environ.get("BERTH_URL")
    if not address:
        return None
    try:
        return url(address)
    except argparse.ArgumentTypeError as error:
        raise CommandError(f"BERTH_URL: {error}") from None


def _connect_to_folder(path: Path) -> Client:
    folder = Folder(path)
    headers = {"x-auth-token": folder.secrets().admin, **API_VERSIONS}
    return Client(folder.running().url, headers, retries=_RETRIES)


def _connect_to_cloud(cloud: CloudDescription, address: str | None, ca_file: Path | None) -> Client:
    login = CloudLogin(cloud)
    return Client(
        address or login.find_endpoint(),
        API_VERSIONS,
        token=login.fetch_token,
        ca_file=ca_file or cloud.ca_file,
        verify=cloud.is_verified,
        certificate=cloud.certificate,
        key=cloud.key,
        retries=_RETRIES,
    )


def _refuse_beside_data(arguments: argparse.Namespace) -> None:
    for name in _FOREIGN:
        if getattr(arguments, name) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise CommandError(f"--data names the region and its user: leave out {flag}")
