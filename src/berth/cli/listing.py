"""What ``berth settings`` prints: every setting, its value, where that comes from, and what it is for."""

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
