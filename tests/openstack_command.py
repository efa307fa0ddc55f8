"""The ``openstack`` command with its plugins, for a process that imports them before the command is called.

The commands that wait look every 5 seconds whether they need wait no longer; here, more often.
"""

import contextlib
import functools
import importlib.metadata
from typing import Final

import osc_lib.utils
from openstack.compute.v2._proxy import Proxy
from openstackclient import shell

PLUGINS: Final = (
    "openstack.cli.base",
    "openstack.cli.extension",
    "openstack.common",
    "openstack.compute.v2",
    "openstack.identity.v3",
    "openstack.image.v2",
    "openstack.placement.v1",
    "cliff.formatter.list",
    "cliff.formatter.show",
)
"""Groups of entry points. They are loaded as far as they can be imported. The commands load the rest."""
LOOK_EVERY_S: Final = 0.2

for name in ("wait_for_status", "wait_for_delete"):
    setattr(osc_lib.utils, name, functools.partial(getattr(osc_lib.utils, name), sleep_time=LOOK_EVERY_S))
Proxy.wait_for_delete = functools.partialmethod(  # type: ignore[method-assign, assignment]
    Proxy.wait_for_delete, interval=LOOK_EVERY_S
)
for group in PLUGINS:
    for entry_point in importlib.metadata.entry_points(group=group):
        with contextlib.suppress(ImportError):
            entry_point.load()

main = shell.main
