"""``berth demo``: a server with a made-up fleet on it, for a first look. Development only: any token is good.

The server is an ordinary ``berth serve`` in a process of its own; the fleet is written through its API, as
any client would. Signals go on to the server, and its exit status is ours.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from berth.client import ClientError, PlacementClient
from berth.client.fleet import host_id, write_fleet

_TOKEN: Final = "admin"
_START_WITHIN_S: Final = 60

_TRY: Final = """
Berth is at {url}, with {hosts} made-up hosts; its data is in {data}. Try, from another terminal:

  1. Where would 2 cpus and 4 GiB fit?
     curl -s '{url}/allocation_candidates?resources=VCPU:2,MEMORY_MB:4096&limit=2' \\
       -H 'X-Auth-Token: admin' -H 'OpenStack-API-Version: placement 1.39'

  2. Claim them on the first host:
     curl -si -X PUT '{url}/allocations/11111111-1111-4111-8111-111111111111' \\
       -H 'X-Auth-Token: admin' -H 'OpenStack-API-Version: placement 1.39' \\
       -H 'Content-Type: application/json' \\
       -d '{{"allocations": {{"{host}": {{"resources": {{"VCPU": 2, "MEMORY_MB": 4096}}}}}},
            "project_id": "demo", "user_id": "me", "consumer_generation": null, "consumer_type": "INSTANCE"}}'

  3. See it with OpenStack's own client:
     {bin}/openstack --os-auth-type admin_token --os-token admin --os-endpoint {url} \\
       --os-placement-api-version 1.39 resource provider usage show {host}

Ctrl-C stops it.
"""


def demo(listen: str, data: Path, hosts: int) -> int:
    """Serve until told to stop; the server's exit status."""
    data.mkdir(parents=True, exist_ok=True)
    url = f"http://{listen}"
    words = [sys.executable, "-m", "berth.cli", "serve", "--listen", listen, "--log-level", "warning"]
    words += ["--database", f"sqlite:///{data / 'berth.db'}", "--auth", "noauth"]
    # A session of its own: Ctrl-C in a terminal reaches the whole group, and the server should hear it once.
    server = subprocess.Popen(words, start_new_session=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.terminate())
    try:
        _fill(server, url, hosts)
    except ClientError as error:
        if server.poll() is None:
            print(f"berth: {error}", file=sys.stderr)
            server.terminate()
        return server.wait() or 1
    print(_TRY.format(url=url, hosts=hosts, data=data, host=host_id(0), bin=_bin()), flush=True)
    return server.wait()


def _fill(server: "subprocess.Popen[bytes]", url: str, hosts: int) -> None:
    client = PlacementClient(url, _TOKEN)
    deadline_s = time.monotonic() + _START_WITHIN_S
    while True:
        try:
            client.get("/readyz")
            break
        except ClientError:
            if server.poll() is not None or time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)
    print(f"Writing a fleet of {hosts} hosts ...", flush=True)
    write_fleet(client, hosts)
    client.close()


def _bin() -> Path:
    """Where the commands of this installation are, as short as it can be said."""
    folder = Path(sys.executable).parent
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
