"""Clouds as OpenStack's clients know them: ``clouds.yaml`` with ``secure.yaml``, or ``OS_*`` variables.

Files are found as openstacksdk finds them: OS_CLIENT_CONFIG_FILE (OS_CLIENT_SECURE_FILE,
OS_CLIENT_VENDOR_FILE), else the first in the current folder, ``~/.config/openstack``, ``/etc/openstack``.
secure.yaml is laid over clouds.yaml, and both over the cloud's ``profile`` of clouds-public.yaml. A named
cloud is taken from files alone; ``OS_*`` variables describe a cloud of their own.

What concerns other services is left alone: a clouds.yaml is shared by many programs.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

_FOLDERS: Final = (Path(), Path("~/.config/openstack"), Path("/etc/openstack"))
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_BYTES_MAX: Final = 4 << 20
_NO: Final = frozenset(("false", "no", "off", "0"))
_INTERFACES: Final = ("public", "internal", "admin")
AUTH_NAMES: Final = (
    "auth_url",
    "username",
    "user_id",
    "password",
    "project_name",
    "project_id",
    "user_domain_name",
    "user_domain_id",
    "project_domain_name",
    "project_domain_id",
    "default_domain_name",
    "default_domain_id",
    "domain_name",
    "domain_id",
    "system_scope",
    "trust_id",
    "token",
    "endpoint",
    "application_credential_id",
    "application_credential_name",
    "application_credential_secret",
    "passcode",
)
"""What a login may be described by. Which of these count depends on the kind of the login."""
_OTHER_NAMES: Final = (
    "auth_type",
    "region_name",
    "interface",
    "cacert",
    "cert",
    "key",
    "placement_endpoint_override",
)
_FORMER: Final = {"tenant_name": "project_name", "tenant_id": "project_id", "user_name": "username"}


class CloudError(Exception):
    """A cloud is not described, or not so that it can be used. The message is for the operator."""


class CloudDescription(msgspec.Struct, frozen=True, kw_only=True):
    """How to log in to a cloud and find Berth there. ``name`` says in messages which cloud is meant."""

    name: str
    auth_type: str
    auth: dict[str, str]
    region_name: str | None = None
    interface: str = "public"
    ca_file: Path | None = None
    is_verified: bool = True
    certificate: Path | None = None
    key: Path | None = None
    endpoint: str | None = None
    """Berth's address, in place of the one that the catalog has for placement."""


def read_cloud(name: str, environ: Mapping[str, str]) -> CloudDescription:
    """A cloud of clouds.yaml."""
    path, clouds = _read_file("clouds", "OS_CLIENT_CONFIG_FILE", environ)
    if path is None:
        places = ", ".join(str(folder / "clouds.yaml") for folder in _FOLDERS)
        raise CloudError(
            f"the cloud {name}: there is no clouds.yaml: neither {places} nor what "
            "OS_CLIENT_CONFIG_FILE names"
        )
    known = _read_table(clouds, "clouds", path)
    if name not in known:
        there = ", ".join(map(str, known)) or "none"
        raise CloudError(f"{path}: there is no cloud {name}; there are: {there}")
    described = _read_table(known, name, path)
    secure_path, secure = _read_file("secure", "OS_CLIENT_SECURE_FILE", environ)
    if secure_path is not None:
        secrets = _read_table(secure, "clouds", secure_path)
        described = _merge(described, _read_table(secrets, name, secure_path))
    described = _merge(_read_profile(described, path, environ), described)
    return _describe(f"the cloud {name} of {path}", described, environ.get("OS_REGION_NAME"))


def read_variables(environ: Mapping[str, str]) -> CloudDescription | None:
    """The cloud that ``OS_*`` variables describe; None if they describe none."""
    given = {name[3:].lower(): value for name, value in environ.items() if name.startswith("OS_") and value}
    given = {_FORMER.get(name, name): value for name, value in given.items()}
    if not {"auth_url", "endpoint", "placement_endpoint_override"} & set(given):
        return None
    described: dict[str, Any] = {name: given[name] for name in _OTHER_NAMES if name in given}
    described["auth"] = {name: given[name] for name in AUTH_NAMES if name in given}
    if given.get("insecure", "").lower() not in ("", *_NO):
        described["verify"] = False
    return _describe("the cloud that OS_* variables describe", described, None)


# -- files --------------------------------------------------------------------------------------


def _read_file(stem: str, variable: str, environ: Mapping[str, str]) -> tuple[Path | None, Any]:
    """The first of the files, and what is in it."""
    named = environ.get(variable)
    for path in [Path(named)] if named else _candidates(stem):
        try:
            with path.expanduser().open("rb") as opened:
                content = opened.read(_BYTES_MAX + 1)
            if len(content) > _BYTES_MAX:
                raise CloudError(f"{path} is too large: {_BYTES_MAX} bytes are the most there can be")
            return path, yaml.safe_load(content) or {}
        except FileNotFoundError:
            if named:
                raise CloudError(f"{variable} names {path}, which does not exist") from None
        except OSError as error:
            raise CloudError(f"{path} cannot be read: {error.strerror}") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise CloudError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    return None, {}


def _candidates(stem: str) -> Iterator[Path]:
    return (folder / f"{stem}{suffix}" for folder in _FOLDERS for suffix in _SUFFIXES)


def _read_profile(described: Mapping[str, Any], path: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    profile = described.get("profile") or described.get("cloud")
    if profile is None:
        return {}
    public_path, public = _read_file("clouds-public", "OS_CLIENT_VENDOR_FILE", environ)
    known = {} if public_path is None else _read_table(public, "public-clouds", public_path)
    if profile not in known:
        raise CloudError(f"{path}: the profile {profile} is in no clouds-public.yaml")
    return _read_table(known, str(profile), public_path or path)


def _read_table(content: Any, key: str, path: Path) -> dict[str, Any]:
    """A table of a file; empty where it is missing."""
    found = content.get(key) if isinstance(content, dict) else content
    if not isinstance(content, dict) or not isinstance(found, dict | None):
        raise CloudError(f"{path}: {key} is not a table")
    return found or {}


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        before = merged.get(key)
        merged[key] = _merge(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


# -- what they say ------------------------------------------------------------------------------


def _describe(name: str, given: Mapping[str, Any], region: str | None) -> CloudDescription:
    auth = given.get("auth") or {}
    if not isinstance(auth, dict):
        raise CloudError(f"{name}: auth is not a table")
    texts = {_FORMER.get(str(key), str(key)): str(value) for key, value in auth.items() if value is not None}
    interface = str(given.get("interface") or given.get("endpoint_type") or "public").removesuffix("URL")
    if interface not in _INTERFACES:
        raise CloudError(f"{name}: interface is {interface!r}, and must be one of {', '.join(_INTERFACES)}")
    override = given.get("placement_endpoint_override")
    return CloudDescription(
        name=name,
        auth_type=str(given.get("auth_type") or _guess_type(texts)),
        auth=texts,
        region_name=region or _read_region(given),
        interface=interface,
        ca_file=_read_path(given, "cacert"),
        is_verified=str(given.get("verify", True)).lower() not in _NO,
        certificate=_read_path(given, "cert"),
        key=_read_path(given, "key"),
        endpoint=None if override is None else str(override),
    )


def _guess_type(auth: Mapping[str, str]) -> str:
    if "application_credential_secret" in auth:
        return "v3applicationcredential"
    if "token" in auth:
        return "token" if "auth_url" in auth else "admin_token"
    return "password"


def _read_region(given: Mapping[str, Any]) -> str | None:
    """The region, or the first of several."""
    regions = given.get("regions") or [None]
    first = given.get("region_name") or (regions[0] if isinstance(regions, list) else regions)
    named = first.get("name") if isinstance(first, dict) else first
    return None if named is None else str(named)


def _read_path(given: Mapping[str, Any], key: str) -> Path | None:
    value = given.get(key)
    return None if not value else Path(str(value)).expanduser()
