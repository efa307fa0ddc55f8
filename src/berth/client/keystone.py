"""Logging in to an OpenStack cloud with keystoneauth1: tokens, and where Berth is according to the catalog.

All of it is done by keystoneauth1, so that what works with other OpenStack clients works here: passwords,
tokens, application credentials, and whatever else it has plugins for. It takes as long to import as all the
rest, and is imported only by those who log in.
"""

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final

from berth.client.clouds import AUTH_NAMES, CloudDescription, CloudError

if TYPE_CHECKING:
    from keystoneauth1.exceptions import ClientException
    from keystoneauth1.loading import BaseLoader
    from keystoneauth1.plugin import BaseAuthPlugin

_TIMEOUT_S: Final = 10
_SERVICE: Final = "placement"
_REFUSED: Final = range(400, 500)
_USERS: Final = {
    "username": "as",
    "user_id": "as the user",
    "application_credential_id": "with the application credential",
    "application_credential_name": "with the application credential",
}
"""What names a user, and how that reads."""

Token = Callable[[], str]
"""Gives a token, or an exception that says why not. It may take a while: it is called in a thread."""


class CloudLogin:
    """A user of a cloud. Nothing is sent before a token or an address is asked for."""

    def __init__(self, cloud: CloudDescription) -> None:
        from keystoneauth1.session import Session

        self._cloud = cloud
        self._auth = _load_plugin(cloud)
        verify: bool | str = cloud.is_verified
        if cloud.ca_file is not None and cloud.is_verified:
            verify = str(cloud.ca_file)
        self._session = Session(
            auth=self._auth, timeout=_TIMEOUT_S, verify=verify, cert=_make_pair(cloud.certificate, cloud.key)
        )

    def fetch_token(self) -> str:
        """A new token."""
        from keystoneauth1.exceptions import ClientException

        self._auth.invalidate()
        try:
            issued = self._session.get_token()
        except ClientException as error:
            raise self._fail(error) from error
        if issued is None:
            raise CloudError(f"{self._cloud.name}: no token was issued")
        return str(issued)

    def find_endpoint(self) -> str:
        """Where Berth is: the endpoint of placement in the catalog, unless the cloud says otherwise."""
        if self._cloud.endpoint is not None:
            return self._cloud.endpoint
        if "endpoint" in self._cloud.auth:
            return self._cloud.auth["endpoint"]
        from keystoneauth1.exceptions import ClientException
        from keystoneauth1.identity import BaseIdentityPlugin

        if not isinstance(self._auth, BaseIdentityPlugin):
            raise CloudError(
                f"{self._cloud.name}: without a catalog, placement_endpoint_override must be given"
            )
        region = self._cloud.region_name
        try:
            access = self._auth.get_access(self._session)
        except ClientException as error:
            raise self._fail(error) from error
        try:
            found = access.service_catalog.url_for(
                service_type=_SERVICE, interface=self._cloud.interface, region_name=region
            )
        except ClientException as error:
            where = f" in the region {region}" if region else ""
            raise CloudError(
                f"{self._cloud.name}: no {self._cloud.interface} endpoint of {_SERVICE}{where}: {error}"
            ) from error
        return str(found)

    def _fail(self, error: "ClientException") -> CloudError:
        """Why there is no token: who was asked for one, as whom, and what the answer was."""
        status = getattr(error, "http_status", None)
        outcome = "was refused by" if status in _REFUSED else "failed at"
        auth = self._cloud.auth
        where = auth.get("auth_url", "an address that is not given")
        return CloudError(f"{self._cloud.name}: signing in {_name_user(auth)} {outcome} {where}: {error}")


def _name_user(auth: Mapping[str, str]) -> str:
    """Who signs in, and where to. No secret is in it."""
    for name, words in _USERS.items():
        if name in auth:
            project = auth.get("project_name") or auth.get("project_id")
            return f"{words} {auth[name]}" + (f" to the project {project}" if project else "")
    return "with a token" if "token" in auth else "without a user"


def keystone_token(
    auth_url: str,
    username: str,
    password: str,
    project: str,
    user_domain: str = "Default",
    project_domain: str = "Default",
    *,
    verify: bool | str = True,
) -> Token:
    """Tokens of a user of Keystone's, each a new one. ``verify``: False, or a CA file in place of the
    system's."""
    cloud = CloudDescription(
        name="Keystone",
        auth_type="v3password",
        auth={
            "auth_url": auth_url,
            "username": username,
            "password": password,
            "project_name": project,
            "user_domain_name": user_domain,
            "project_domain_name": project_domain,
        },
        ca_file=Path(verify) if isinstance(verify, str) else None,
        is_verified=verify is not False,
    )
    return CloudLogin(cloud).fetch_token


def _load_plugin(cloud: CloudDescription) -> "BaseAuthPlugin":
    from keystoneauth1.exceptions import ClientException
    from keystoneauth1.loading import get_plugin_loader

    known = entry_points(group="keystoneauth1.plugin").names
    if cloud.auth_type not in known:
        raise CloudError(
            f"{cloud.name}: there is no auth_type {cloud.auth_type}; there are: {', '.join(sorted(known))}"
        )
    auth_type = cloud.auth_type
    is_v3 = cloud.auth.get("auth_url", "").rstrip("/").endswith("/v3")
    if auth_type in ("password", "token") and is_v3 and not _has_default_domain(cloud):
        # The address says which version it is: no request is needed to find out.
        auth_type = f"v3{auth_type}"
    loader: BaseLoader[BaseAuthPlugin] = get_plugin_loader(auth_type)
    options = {option.dest for option in loader.get_options()}
    unknown = sorted(set(cloud.auth) - options - set(AUTH_NAMES))
    if unknown:
        raise CloudError(f"{cloud.name}: auth_type {cloud.auth_type} has no {', '.join(unknown)}")
    try:
        return loader.load_from_options(**{name: cloud.auth[name] for name in cloud.auth if name in options})
    except ClientException as error:
        raise CloudError(f"{cloud.name}: {error}") from error


def _has_default_domain(cloud: CloudDescription) -> bool:
    """Whether it names a domain that only the plugins of any version know."""
    return any(name.startswith("default_domain") for name in cloud.auth)


def _make_pair(certificate: Path | None, key: Path | None) -> str | tuple[str, str] | None:
    if certificate is None:
        return None
    return str(certificate) if key is None else (str(certificate), str(key))
