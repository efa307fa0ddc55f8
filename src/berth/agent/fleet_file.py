"""A fleet described in a TOML file, for ``--fleet``.

    [[host]]
    name = "db-1"                   # or: count = 20, prefix = "web", for web-0001 to web-0020
    cell = "cell1"                  # optional
    traits = ["COMPUTE_NODE"]
    aggregates = ["rack-7"]         # names, or ids
    [host.inventories]
    VCPU = 32                       # or in full: { total = 32, reserved = 2, allocation_ratio = 4.0 }
    MEMORY_MB = 131072
    [[host.children]]               # providers below it, which may have children too
    name = "gpu0"
    inventories = { VGPU = 4 }

Everything is checked before any of it is used. A refusal names the file, the entry, and what would do.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from berth.agent.fleet import HOSTS_MAX, Name, SimHost, SimProvider, numbered, providers
from berth.cell.protocol import PROVIDERS_MAX
from berth.model.vocabulary import STANDARD_CLASSES, STANDARD_TRAITS, is_custom_name

_NAME_LENGTH_MAX: Final = 200


class FleetError(Exception):
    """The file describes no fleet. The message is for the operator, and complete."""


class _HostEntry(SimHost, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host, or several of a kind."""

    name: Name | None = None  # type: ignore[assignment]
    count: Annotated[int, Meta(ge=1, le=HOSTS_MAX)] | None = None
    prefix: Name | None = None


def read_fleet(path: str | Path) -> list[SimHost]:
    """The hosts that a file describes, or FleetError."""
    entries = _entries(path)
    hosts: dict[str, SimHost] = {}
    names: dict[str, str] = {}
    for number, entry in enumerate(entries, 1):
        where = f"{path}: host {number}{_called(entry)}"
        for host in _hosts(entry, where):
            for name in _checked(host, where):
                if name in names:
                    raise FleetError(f"{where}: the name {name} is taken by {names[name]}; names are unique")
                names[name] = f"host {number}"
            hosts[host.name] = host
        if len(hosts) > HOSTS_MAX:
            raise FleetError(f"{where}: there are more than {HOSTS_MAX} hosts")
    return list(hosts.values())


def _entries(path: str | Path) -> list[Any]:
    try:
        given = msgspec.toml.decode(Path(path).read_bytes())
    except OSError as error:
        raise FleetError(f"{path}: the fleet cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FleetError(f"{path}: this is not TOML: {error}") from error
    unknown = sorted(set(given) - {"host"})
    if unknown:
        raise FleetError(f"{path}: unknown key {unknown[0]}; a fleet is made of [[host]] entries")
    entries = given.get("host", [])
    if not isinstance(entries, list) or not entries:
        raise FleetError(f"{path}: there is no [[host]] entry in it")
    return entries


def _called(entry: Any) -> str:
    name = entry.get("name") or entry.get("prefix") if isinstance(entry, dict) else None
    return f" ({name})" if isinstance(name, str) else ""


def _hosts(given: Any, where: str) -> Iterator[SimHost]:
    try:
        entry = msgspec.convert(_in_full(given), _HostEntry)
    except msgspec.ValidationError as error:
        raise FleetError(f"{where}: {_said_plainly(error)}") from error
    fields = msgspec.structs.asdict(entry)
    name, count, prefix = (fields.pop(key) for key in ("name", "count", "prefix"))
    if name is not None and count is None and prefix is None:
        yield SimHost(name=name, **fields)
    elif name is None and count is not None and prefix is not None:
        for number in range(1, count + 1):
            yield SimHost(name=numbered(prefix, number), **fields)
    else:
        raise FleetError(f"{where}: either name, or count and prefix, are needed")


def _in_full(given: Any) -> Any:
    """An entry with the inventories that are a mere number written out."""
    if not isinstance(given, Mapping):
        return given
    entry = dict(given)
    inventories, children = entry.get("inventories"), entry.get("children")
    if isinstance(inventories, Mapping):
        entry["inventories"] = {
            name: {"total": one} if isinstance(one, int) else one for name, one in inventories.items()
        }
    if isinstance(children, list):
        entry["children"] = [_in_full(child) for child in children]
    return entry


def _said_plainly(error: msgspec.ValidationError) -> str:
    return str(error).replace(" - at `$.", ", at `").replace("Object contains unknown field", "unknown key")


def _checked(host: SimHost, where: str) -> Iterator[str]:
    """The names of a host's providers; FleetError where one cannot be."""
    tree = list(providers(host))
    if len(tree) > PROVIDERS_MAX:
        raise FleetError(f"{where}: {len(tree)} providers are more than {PROVIDERS_MAX}")
    for provider in tree:
        if len(provider.name) > _NAME_LENGTH_MAX:
            raise FleetError(f"{where}: the name {provider.name} has more than {_NAME_LENGTH_MAX} letters")
        yield provider.name
    _check_words(host, where)


def _check_words(given: SimHost | SimProvider, where: str) -> None:
    for name, inventory in given.inventories.items():
        if name not in STANDARD_CLASSES and not is_custom_name(name):
            raise FleetError(f"{where}: {name} is no resource class: it is not standard, and not CUSTOM_...")
        if inventory.reserved > inventory.total:
            raise FleetError(f"{where}: {name}: {inventory.reserved} cannot be reserved of {inventory.total}")
    for name in given.traits:
        if name not in STANDARD_TRAITS and not is_custom_name(name):
            raise FleetError(f"{where}: {name} is no trait: it is not standard, and not CUSTOM_...")
    for child in given.children:
        _check_words(child, f"{where}: {child.name}")
