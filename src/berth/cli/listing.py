"""All settings, for people: what ``berth settings`` prints, and the page in the guides (``make docs``)."""

from berth.cli.arguments import shown
from berth.runtime.settings import TABLE, Setting
from berth.runtime.sources import Resolved


def render(resolved: Resolved) -> str:
    rows = [(setting.name, _value(setting, resolved), _origin(setting, resolved)) for setting in TABLE]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "".join(f"{name:{widths[0]}}  {value:{widths[1]}}  {origin}\n" for name, value, origin in rows)


def _value(setting: Setting, resolved: Resolved) -> str:
    value = getattr(resolved.settings, setting.name)
    return "(hidden)" if setting.about.secret and value is not None else shown(value)


def _origin(setting: Setting, resolved: Resolved) -> str:
    return resolved.origins.get(setting.name, "default")


_PAGE = """\
# Settings

Every setting can be given in three ways; the later wins:

1. a key in the TOML file named by `--config` (or `BERTH_CONFIG`): `workers = 4`
2. an environment variable: `BERTH_WORKERS=4`
3. a flag: `--workers 4`

`berth settings` prints the values in force and where each comes from. A name that is not a setting is
refused, and a value outside its range too, with what was given, what is allowed, and where it stood. Where
the environment holds other variables that begin with `BERTH_` (Kubernetes makes some for a service named
berth), keep them away.

| setting | default | what it is |
| --- | --- | --- |
"""


def page() -> str:
    return _PAGE + "".join(f"| `{s.name}` | {shown(s.default)} | {_words(s)} |\n" for s in TABLE)


def _words(setting: Setting) -> str:
    limits = "" if setting.kind is str and not setting.choices else f"; {setting.allowed}"
    return setting.about.help + limits
