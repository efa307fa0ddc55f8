"""A region that takes its tokens from a Keystone, for tests."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.real_keystone import PASSWORD, Person, RealKeystone
from tests.servers import ServerProcess, berth, running


@contextlib.contextmanager
def region_behind(
    keystone: RealKeystone, folder: Path, *options: str, own: Person | None = None, password: str = PASSWORD
) -> Iterator[ServerProcess]:
    """``berth serve`` with a cell, and a user of its own in Keystone: a new one, unless it is given. A token
    is cached for a second."""
    own = own or keystone.add_person("service")
    project = own.name.replace("person", "project")
    words = ["--auth", "keystone", "--keystone-auth-url", keystone.url, "--keystone-username", own.name]
    words += ["--keystone-project-name", project, "--keystone-cache-seconds", "1"]
    words += ["--cells", f"cell1=sqlite:///{folder}/cell1.db", *options]
    server = berth(folder, *words)
    assert server.env is not None
    server.env = {**server.env, "BERTH_KEYSTONE_PASSWORD": password}
    with running(server):
        yield server
