"""Custom resource classes and traits that operators add to providers of a host, from files: Nova's
``provider.yaml``, schema 1.0.

    meta: {schema_version: "1.0"}
    providers:
      - identification: {uuid: $COMPUTE_NODE}     # the host itself; or the uuid, or the name, of a provider
        inventories:
          additional:
            - CUSTOM_LICENSE: {total: 10}         # and all that an inventory has
        traits:
          additional: [CUSTOM_GOLD]

All files of the folder that end in .yaml are read, in the order of their names. Anything else than this is
refused, with file and line: what is not standard is an operator's mistake, and half of a file is worse than
none. Names are custom (CUSTOM_...). A provider is there once, in all files together, and a class or a trait
once at its provider; a class and a trait may have the same name.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from berth.cell.protocol import ReportedInventory, ReportedProvider
from berth.model.placement import is_custom_name

THE_HOST: Final = "$COMPUTE_NODE"
FILES_MAX: Final = 100
BYTES_MAX: Final = 256 << 10
ENTRIES_MAX: Final = 1_000
"""Of a list."""
_SCHEMA: Final = "1.0"
_CLASS: Final = "resource class"
_TRAIT: Final = "trait"
_DECIMAL: Final = re.compile(r"-?(0|[1-9][0-9]*)")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class ProviderConfigError(Exception):
    """A file cannot be used. The message names it and the line, and is complete."""


class ProviderAddition(NamedTuple):
    """What a file adds to a provider. ``where``: file and line of it; ``lines``: those of what it adds, by
    kind and name."""

    where: str
    uuid: str | None
    name: str | None
    inventories: dict[str, ReportedInventory]
    traits: tuple[str, ...]
    lines: dict[tuple[str, str], str]


def read_provider_config(folder: Path) -> tuple[ProviderAddition, ...]:
    """The additions of all files of a folder; ProviderConfigError if one of them cannot be used."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".yaml")
    except OSError as error:
        raise ProviderConfigError(f"{folder}: the folder cannot be read: {error.strerror}") from error
    if len(files) > FILES_MAX:
        raise ProviderConfigError(f"{folder}: {len(files)} files are more than {FILES_MAX}")
    found = [addition for file in files for addition in _File(file).read()]
    keys: dict[str, str] = {}
    for addition in found:
        key = addition.uuid or addition.name or ""
        if key in keys:
            raise ProviderConfigError(f"{addition.where}: the provider {key} is in {keys[key]} already")
        keys[key] = addition.where
    return tuple(found)


def add_to_providers(
    providers: tuple[ReportedProvider, ...], additions: tuple[ProviderAddition, ...], *, skip_unknown: bool
) -> tuple[ReportedProvider, ...]:
    """The providers with what is added to them. ProviderConfigError if one is added twice, or unknown (which
    a device is, too, that has gone since the agent has started: ``skip_unknown``)."""
    by_id = {provider.id: provider for provider in providers}
    names = {provider.name: provider.id for provider in providers}
    done: dict[str, str] = {}
    for addition in additions:
        uuid = providers[0].id if addition.uuid == THE_HOST else addition.uuid
        id = (uuid or "").lower() if addition.name is None else names.get(addition.name, "")
        if id not in by_id:
            if skip_unknown:
                continue
            there = ", ".join(list(names)[:5]) + (", ..." if len(names) > 5 else "")
            said = addition.name or addition.uuid
            raise ProviderConfigError(f"{addition.where}: there is no provider {said}; there are {there}")
        provider = by_id[id]
        if id in done:
            raise ProviderConfigError(
                f"{addition.where}: the provider {provider.name} is in {done[id]} already, by another name"
            )
        done[id] = addition.where
        for (kind, name), where in addition.lines.items():
            if name in (provider.inventories if kind == _CLASS else provider.traits):
                raise ProviderConfigError(
                    f"{where}: {name} is there already: the agent finds it at {provider.name}"
                )
        by_id[id] = msgspec.structs.replace(
            provider,
            inventories={**provider.inventories, **addition.inventories},
            traits=tuple(sorted({*provider.traits, *addition.traits})),
        )
    return tuple(by_id.values())


class _File:
    """One file. It is composed to nodes and not loaded, because nodes know their lines."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[ProviderAddition]:
        root = self._compose()
        fields = self._read_fields(root, "the file", ("meta", "providers"), ("meta",))
        meta = self._read_fields(fields["meta"], "meta", ("schema_version",), ("schema_version",))
        version = self._read_text(meta["schema_version"], "schema_version")
        if version != _SCHEMA:
            raise self._refuse(meta["schema_version"], f"schema_version is {version!r}, not {_SCHEMA!r}")
        if "providers" not in fields:
            return []
        return [self._read_provider(node) for node in self._read_list(fields["providers"], "providers")]

    def _compose(self) -> yaml.Node:
        if not self._path.is_file():
            # A fifo would never end.
            raise ProviderConfigError(f"{self._path}: it is not a file")
        try:
            with self._path.open("rb") as file:
                content = file.read(BYTES_MAX + 1)
        except OSError as error:
            raise ProviderConfigError(f"{self._path}: it cannot be read: {error.strerror}") from error
        if len(content) > BYTES_MAX:
            raise ProviderConfigError(f"{self._path}: it has more than {BYTES_MAX} bytes")
        try:
            root = yaml.compose(content, yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
            raise ProviderConfigError(f"{self._path}:{line}: this is not YAML: {error.problem}") from error
        except yaml.reader.ReaderError as error:
            # What cannot be decoded: it is told by its place in the file.
            line = content.count(b"\n", 0, error.position) + 1
            raise ProviderConfigError(f"{self._path}:{line}: this is not YAML: {error.reason}") from error
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise ProviderConfigError(f"{self._path}: this is not YAML: {error}") from error
        if root is None:
            raise ProviderConfigError(f"{self._path}:1: it is empty")
        return root

    def _read_provider(self, node: yaml.Node) -> ProviderAddition:
        fields = self._read_fields(
            node, "a provider", ("identification", "inventories", "traits"), ("identification",)
        )
        identification = self._read_fields(fields["identification"], "identification", ("name", "uuid"), ())
        if len(identification) != 1:
            raise self._refuse(fields["identification"], "either name or uuid is needed, and not both")
        texts = {key: self._read_text(value, key) for key, value in identification.items()}
        uuid = texts.get("uuid")
        if uuid is not None and uuid != THE_HOST and not _UUID.fullmatch(uuid):
            raise self._refuse(identification["uuid"], f"{uuid!r} is not a uuid, and not {THE_HOST}")
        lines: dict[tuple[str, str], str] = {}
        inventories: dict[str, ReportedInventory] = {}
        for entry in self._read_additional(fields.get("inventories"), "inventories"):
            for name, value in self._read_pairs(entry, "an inventory"):
                self._note_name(entry, name, _CLASS, lines)
                inventories[name] = self._read_inventory(value, name)
        traits = []
        for entry in self._read_additional(fields.get("traits"), "traits"):
            name = self._read_text(entry, "a trait")
            self._note_name(entry, name, _TRAIT, lines)
            traits.append(name)
        return ProviderAddition(self._where(node), uuid, texts.get("name"), inventories, tuple(traits), lines)

    def _read_additional(self, node: yaml.Node | None, what: str) -> list[yaml.Node]:
        if node is None:
            return []
        fields = self._read_fields(node, what, ("additional",), ())
        return self._read_list(fields["additional"], f"{what}.additional") if fields else []

    def _note_name(self, node: yaml.Node, name: str, kind: str, lines: dict[tuple[str, str], str]) -> None:
        if not is_custom_name(name):
            raise self._refuse(node, f"{name!r} is not a custom {kind}: CUSTOM_, then A-Z, 0-9 and _")
        if (kind, name) in lines:
            raise self._refuse(node, f"{name} is there twice: {lines[kind, name]} has it too")
        lines[kind, name] = self._where(node)

    def _read_inventory(self, node: yaml.Node, name: str) -> ReportedInventory:
        keys = tuple(field.name for field in msgspec.structs.fields(ReportedInventory))
        fields = self._read_fields(node, name, keys, ("total",))
        values = {key: self._read_number(value, key) for key, value in fields.items()}
        try:
            inventory = msgspec.convert(values, ReportedInventory)
        except msgspec.ValidationError as error:
            raise self._refuse(node, f"{name}: {error}") from error
        if inventory.reserved > inventory.total:
            raise self._refuse(node, f"{name}: {inventory.reserved} cannot be reserved of {inventory.total}")
        max_unit = inventory.max_unit or inventory.total
        if inventory.min_unit > max_unit:
            raise self._refuse(node, f"{name}: min_unit {inventory.min_unit} is above max_unit {max_unit}")
        return msgspec.structs.replace(inventory, max_unit=max_unit)

    # -- nodes -----------------------------------------------------------------------------------

    def _read_pairs(self, node: yaml.Node, what: str) -> Iterator[tuple[str, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode) or len(node.value) > ENTRIES_MAX:
            raise self._refuse(node, f"{what} must be keys and values, {ENTRIES_MAX} at most")
        seen = set()
        for key, value in node.value:
            name = self._read_text(key, "a key")
            if name in seen:
                raise self._refuse(key, f"{name} is there twice")
            seen.add(name)
            yield name, value

    def _read_fields(
        self, node: yaml.Node, what: str, known: tuple[str, ...], needed: tuple[str, ...]
    ) -> dict[str, yaml.Node]:
        fields = {}
        for name, value in self._read_pairs(node, what):
            if name not in known:
                raise self._refuse(value, f"unknown key {name} in {what}; there are {', '.join(known)}")
            fields[name] = value
        missing = [name for name in needed if name not in fields]
        if missing:
            raise self._refuse(node, f"{missing[0]} is missing in {what}")
        return fields

    def _read_list(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode) or len(node.value) > ENTRIES_MAX:
            raise self._refuse(node, f"{what} must be a list of {ENTRIES_MAX} entries at most")
        return list(node.value)

    def _read_text(self, node: yaml.Node, what: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag != "tag:yaml.org,2002:str" or not node.value:
            raise self._refuse(node, f"{what} must be a string")
        return str(node.value)

    def _read_number(self, node: yaml.Node, what: str) -> Any:
        if isinstance(node, yaml.ScalarNode) and len(node.value) <= 40:
            try:
                if node.tag == "tag:yaml.org,2002:int" and _DECIMAL.fullmatch(node.value):
                    return int(node.value)
                if node.tag == "tag:yaml.org,2002:float":
                    return float(node.value)
            except ValueError:
                pass
        raise self._refuse(node, f"{what} must be a number")

    def _where(self, node: yaml.Node) -> str:
        return f"{self._path}:{node.start_mark.line + 1}"

    def _refuse(self, node: yaml.Node, problem: str) -> ProviderConfigError:
        return ProviderConfigError(f"{self._where(node)}: {problem}")
