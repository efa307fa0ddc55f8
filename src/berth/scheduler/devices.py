"""Devices by name: what ``pci_passthrough:alias`` and ``accel:device_profile`` of a flavor ask for.

Names are settings of the region, in the words that operators know. An alias is written as in nova.conf, a
profile as in Cyborg:

    pci_aliases = ['{"name": "nic", "vendor_id": "15b3", "product_id": "1017"}',
                   '{"name": "gpu", "resource_class": "PGPU", "traits": "HW_GPU_API_VULKAN"}']
    device_profiles = ['{"name": "crypto", "groups": [{"resources:FPGA": "1"}]}']

A device of a vendor and product is a unit of CUSTOM_PCI_vvvv_pppp, as agents report devices that are given
away whole. Virtual functions are units of their physical function: an alias for them names a resource class.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from berth.model.devices import DeviceProfile, PciAlias
from berth.model.placement import AMOUNT_MAX, STANDARD_CLASSES, STANDARD_TRAITS, is_custom_name
from berth.model.rejections import SpecInvalid
from berth.model.scheduling import RequestGroup

ALIAS_KEY: Final = "pci_passthrough:alias"
PROFILE_KEY: Final = "accel:device_profile"
NAMED_MAX: Final = 1_000
DEVICES_MAX: Final = 64
"""How many devices one server may ask for by aliases."""
_SHOWN_MAX: Final = 10
ALIASES_WORDS: Final = f"NAME:COUNT with a count from 1 to {DEVICES_MAX}, with commas between them"

_ALIAS: Final = r"\s*[^\s:,][^:,]{0,63}:[0-9]{1,3}\s*"
_ALIASES: Final = re.compile(f"{_ALIAS}(,{_ALIAS}){{0,31}}", re.ASCII)


class WrongDevice(Exception):
    """A setting names no device. The message is for the operator."""


class DeviceCatalog(msgspec.Struct, frozen=True):
    """What names of devices mean."""

    aliases: dict[str, PciAlias] = {}
    profiles: dict[str, DeviceProfile] = {}

    def select(self, specs: Mapping[str, str]) -> tuple[tuple[PciAlias, ...], DeviceProfile | None]:
        """What the names in a flavor mean, as far as they mean anything."""
        names = dict.fromkeys(name for name, _ in read_aliases(specs.get(ALIAS_KEY, "")))
        aliases = tuple(self.aliases[name] for name in names if name in self.aliases)
        return aliases, self.profiles.get(specs.get(PROFILE_KEY, ""))

    def override(self, aliases: Iterable[PciAlias], profile: DeviceProfile | None) -> "DeviceCatalog":
        """The catalog in which names mean what they meant to a server."""
        profiles = () if profile is None else (profile,)
        if not aliases and not profiles:
            return self
        return DeviceCatalog(
            self.aliases | {alias.name: alias for alias in aliases},
            self.profiles | {one.name: one for one in profiles},
        )

    def find_devices(self, specs: Mapping[str, str]) -> "list[tuple[PciAlias, RequestGroup]] | SpecInvalid":
        """The devices that a flavor asks for by aliases, one group each."""
        asked = specs.get(ALIAS_KEY)
        if asked is None:
            return []
        found: list[tuple[PciAlias, RequestGroup]] = []
        for name, count in read_aliases(asked):
            alias = self.aliases.get(name)
            if alias is None:
                accepted = f"of aliases that are configured{_list_names(self.aliases)}; {name} is not"
                return SpecInvalid(ALIAS_KEY, asked, accepted)
            if len(found) + count > DEVICES_MAX:
                return SpecInvalid(ALIAS_KEY, asked, f"{DEVICES_MAX} devices at most")
            found += [(alias, _make_group(alias, f"_pci{len(found) + number}")) for number in range(count)]
        return found

    def find_profile(self, specs: Mapping[str, str]) -> tuple[RequestGroup, ...] | SpecInvalid:
        """The groups of the profile that a flavor names."""
        name = specs.get(PROFILE_KEY)
        if name is None:
            return ()
        profile = self.profiles.get(name)
        if profile is None:
            accepted = f"the name of a device profile that is configured{_list_names(self.profiles)}"
            return SpecInvalid(PROFILE_KEY, name, accepted)
        return _make_groups(profile)


def _list_names(names: Iterable[str]) -> str:
    shown = sorted(names)
    more = len(shown) - _SHOWN_MAX
    text = ", ".join(shown[:_SHOWN_MAX]) or "there are none"
    return f" ({text}{f' and {more} more' if more > 0 else ''})"


def _make_group(alias: PciAlias, suffix: str) -> RequestGroup:
    """The request for one such device."""
    named = alias.resource_class or f"CUSTOM_PCI_{alias.vendor_id}_{alias.product_id}".upper()
    return RequestGroup(
        suffix=suffix,
        label=f"the device {alias.name}",
        resources=((named, 1),),
        required=tuple((trait,) for trait in _split(alias.traits)),
    )


def _make_groups(profile: DeviceProfile) -> tuple[RequestGroup, ...]:
    return tuple(
        _read_group(profile.name, f"_accel{number}", group) for number, group in enumerate(profile.groups)
    )


def read_aliases(text: str) -> list[tuple[str, int]]:
    """Names and numbers of what a flavor asks for; nothing if it cannot be read."""
    if _ALIASES.fullmatch(text) is None:
        return []
    parts = (part.rpartition(":") for part in text.split(","))
    counts = [(name.strip(), int(count)) for name, _, count in parts]
    return counts if all(count for _, count in counts) else []


def read_catalog(aliases: Iterable[str], profiles: Iterable[str]) -> DeviceCatalog:
    """The catalog of a configuration, or WrongDevice."""
    by_name: dict[str, PciAlias] = {}
    for text in aliases:
        alias = _decode("pci_aliases", text, PciAlias)
        _check_alias(alias)
        if alias.name in by_name:
            raise WrongDevice(f"pci_aliases: {alias.name} is there twice")
        by_name[alias.name] = alias
    by_profile: dict[str, DeviceProfile] = {}
    for text in profiles:
        profile = _decode("device_profiles", text, DeviceProfile)
        if profile.name in by_profile:
            raise WrongDevice(f"device_profiles: {profile.name} is there twice")
        _make_groups(profile)
        by_profile[profile.name] = profile
    if max(len(by_name), len(by_profile)) > NAMED_MAX:
        raise WrongDevice(f"pci_aliases, device_profiles: more than {NAMED_MAX}")
    return DeviceCatalog(by_name, by_profile)


def _decode(setting: str, text: str, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise WrongDevice(f"{setting}: {text}: {error}") from error


def _check_alias(alias: PciAlias) -> None:
    where = f"pci_aliases: {alias.name}"
    if alias.resource_class is None and (alias.vendor_id is None or alias.product_id is None):
        raise WrongDevice(f"{where}: vendor_id and product_id, or resource_class, are needed")
    if alias.resource_class is None and alias.device_type == "type-VF":
        raise WrongDevice(
            f"{where}: VFs are units of their PF: give a resource_class such as SRIOV_NET_VF, and traits"
        )
    if alias.resource_class is not None and (alias.vendor_id or alias.product_id):
        raise WrongDevice(f"{where}: vendor_id and product_id, or resource_class, not both")
    if alias.resource_class is not None:
        _check_class(where, alias.resource_class)
    for trait in _split(alias.traits):
        _check_trait(where, trait)


def _read_group(profile: str, suffix: str, given: Mapping[str, str]) -> RequestGroup:
    where = f"device_profiles: {profile}"
    resources: dict[str, int] = {}
    required: list[tuple[str]] = []
    forbidden: list[str] = []
    for key, value in given.items():
        scope, _, name = key.partition(":")
        if scope == "resources":
            _check_class(where, name)
            if not value.isdecimal() or not 1 <= int(value) <= AMOUNT_MAX:
                raise WrongDevice(f"{where}: {key} is {value!r}; it must be a number from 1 to {AMOUNT_MAX}")
            resources[name] = int(value)
        elif scope == "trait":
            _check_trait(where, name)
            if value not in ("required", "forbidden"):
                raise WrongDevice(f"{where}: {key} is {value!r}; it must be required or forbidden")
            required += [(name,)] if value == "required" else []
            forbidden += [name] if value == "forbidden" else []
        else:
            raise WrongDevice(f"{where}: {key} is not understood; there is resources:CLASS and trait:TRAIT")
    if not resources:
        raise WrongDevice(f"{where}: a group asks for no resources")
    return RequestGroup(
        suffix=suffix,
        label=f"the device profile {profile}",
        resources=tuple(resources.items()),
        required=tuple(required),
        forbidden=frozenset(forbidden),
    )


def _check_class(where: str, name: str) -> None:
    if name not in STANDARD_CLASSES and not is_custom_name(name):
        raise WrongDevice(f"{where}: {name!r} is no resource class: it is not standard, and not CUSTOM_...")


def _check_trait(where: str, name: str) -> None:
    if name not in STANDARD_TRAITS and not is_custom_name(name):
        raise WrongDevice(f"{where}: {name!r} is no trait: it is not standard, and not CUSTOM_...")


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
