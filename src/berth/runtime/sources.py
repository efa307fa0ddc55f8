"""Where settings come from. Later wins: defaults, a TOML file, BERTH_* variables, the command line.

Nothing is ignored: a key or variable that is not a setting is refused by name. The refusal of a value says
what was given, what is allowed and where it was given. A file with a secret in it is refused if anybody but
its owner can read or write it.
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from berth.runtime.secrets import refuse_others
from berth.runtime.settings import BY_NAME, TABLE, Setting, Settings, conflicts, redact_password

PREFIX: Final = "BERTH_"
CONFIG_VARIABLE: Final = "BERTH_CONFIG"

_TRUE: Final = frozenset(("true", "yes", "on", "1"))
_FALSE: Final = frozenset(("false", "no", "off", "0"))


class SettingsError(Exception):
    """The settings cannot be used. The message is complete, and meant for the operator."""


class Resolved(msgspec.Struct, frozen=True):
    """Settings, and where each that is not a default came from."""

    settings: Settings
    origins: dict[str, str]


def resolve(
    config_path: str | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Resolved:
    """All sources put together, or SettingsError. ``flags`` maps names of settings to given texts."""
    environ = environ or {}
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}

    def take(setting: Setting, value: Any, origin: str) -> None:
        values[setting.name] = _check(setting, value, origin)
        origins[setting.name] = origin

    config_path = config_path or environ.get(CONFIG_VARIABLE) or None
    if config_path is not None:
        content, shared = _read_toml(config_path)
        for name, given in content.items():
            setting = _find_setting(name, given, config_path)
            take(setting, _from_toml(setting, given, config_path), config_path)
            if shared is not None and _is_secret(setting, values[name]):
                raise SettingsError(f"{shared}. It holds a secret: {name}")
    for setting, text in _variables(environ):
        take(setting, _from_text(setting, text, setting.variable), setting.variable)
    for name, text in (flags or {}).items():
        setting = BY_NAME[name]
        take(setting, _from_text(setting, text, setting.flag), setting.flag)

    return Resolved(Settings(**values), origins)


def refuse_conflicts(resolved: Resolved) -> None:
    """SettingsError if settings do not go together; it names where they came from."""
    problem = conflicts(resolved.settings)
    if problem is None:
        return
    names = problem.partition(": ")[0].split(", ")
    origins = sorted({resolved.origins[name] for name in names if name in resolved.origins})
    raise SettingsError(problem + (f" (from {', '.join(origins)})" if origins else ""))


# -- the file -----------------------------------------------------------------------------------


def _read_toml(path: str) -> tuple[dict[str, Any], str | None]:
    """The content of the file, and why it may not hold a secret, if it may not."""
    try:
        with Path(path).open("rb") as file:
            return tomllib.load(file), refuse_others(path, file)
    except OSError as error:
        raise SettingsError(f"{path}: cannot read the settings: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: invalid TOML: {error}") from error


def _is_secret(setting: Setting, value: Any) -> bool:
    """Whether others must not read a value: a secret, or an address with a password in it."""
    texts = value if isinstance(value, tuple) else (value,)
    return setting.about.secret or any(
        redact_password(text) != text for text in texts if isinstance(text, str)
    )


def _find_setting(name: str, given: Any, path: str) -> Setting:
    if name in BY_NAME:
        return BY_NAME[name]
    if isinstance(given, dict):
        raise SettingsError(f"{path}: unknown table [{name}]; settings are plain keys, without tables")
    raise SettingsError(f"{path}: unknown setting {name}{_hint(name, BY_NAME)}")


def _from_toml(setting: Setting, given: Any, origin: str) -> Any:
    if setting.kind is tuple:
        if isinstance(given, list) and all(isinstance(item, str) for item in given):
            return tuple(given)
    # Every bool of Python is an int; a setting that wants a number does not want true.
    elif type(given) is setting.kind:
        return given
    raise _refusal(setting, given, f"it must be {setting.allowed}", origin)


# -- texts: the environment and the command line ------------------------------------------------


def _variables(environ: Mapping[str, str]) -> Iterable[tuple[Setting, str]]:
    by_variable = {setting.variable: setting for setting in TABLE}
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable == CONFIG_VARIABLE:
            continue
        if variable not in by_variable:
            hint = _hint(variable, [*by_variable, CONFIG_VARIABLE])
            raise SettingsError(f"environment: unknown variable {variable}{hint}")
        yield by_variable[variable], environ[variable]


def _from_text(setting: Setting, text: str, origin: str) -> Any:
    if setting.kind is tuple:
        return tuple(item.strip() for item in text.split(",") if item.strip())
    if setting.kind is bool:
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise _refusal(setting, text, f"it must be {setting.allowed}", origin)
    if setting.kind is int:
        try:
            return int(text)
        except ValueError:
            raise _refusal(setting, text, f"it must be {setting.allowed}", origin) from None
    return text


# -- both ---------------------------------------------------------------------------------------


def _check(setting: Setting, value: Any, origin: str) -> Any:
    about = setting.about
    if setting.choices and value not in setting.choices:
        raise _refusal(setting, value, f"it must be {setting.allowed}", origin)
    if about.low is not None and about.high is not None and not about.low <= value <= about.high:
        raise _refusal(setting, value, f"it must be {setting.allowed}", origin)
    if value == "":
        raise _refusal(setting, value, "it is empty; leave the setting out instead", origin)
    wrong = about.check(value) if about.check is not None else None
    if wrong is not None:
        raise _refusal(setting, value, wrong, origin)
    return value


def _refusal(setting: Setting, given: Any, why: str, origin: str) -> SettingsError:
    shown = "the value given" if setting.about.secret else redact_password(repr(given))
    return SettingsError(f"{setting.name}: {shown} is refused: {why} (from {origin})")


def _hint(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else "; 'berth settings' lists all settings"
