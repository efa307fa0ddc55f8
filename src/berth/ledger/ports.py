"""The rule of ports: a port belongs to one server."""

from collections.abc import Iterable

from berth.model.commands import Enact
from berth.model.rejections import PortInUse
from berth.model.servers import Server
from berth.view import View


def judge(view: View, command: Enact) -> PortInUse | None:
    """The refusal of a change that gives a server a port which another server has. Only ports that a server
    did not have before are judged: servers that share one since an older release can still be changed."""
    given: list[str] = []
    for change in command.changes:
        before, after = change.before, change.after
        # No function is called for a server without needs: a change may be of a thousand, and others wait.
        if after.__class__ is not Server or not after.needs:
            continue
        had = before.ports if isinstance(before, Server) else ()
        given += [port for port in after.ports if port not in had]
    return find_used_port(view, given)


def find_used_port(view: View, ports: Iterable[str]) -> PortInUse | None:
    """The first of these ports of new owners that a server has already, or that is given twice."""
    given: set[str] = set()
    for port in ports:
        if port in given or view.records.find(Server, "port", port):
            return PortInUse(port)
        given.add(port)
    return None
