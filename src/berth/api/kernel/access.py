"""What one caller may do, which objects are there for it, and what it is told of hosts: the one place that
every API asks.

    scope -> the named rule (``Policy``) -> whose object it is

A caller acts in one project. What belongs to another is not there for it, unless the rule
``context_is_admin`` makes it an administrator. No other module knows the name of a role.

Administrators, services, operators and auditors are told all of hosts, others neither their names nor how
many there are. Records and rejections say what there is to say; what of it goes out is decided when it is
shown.
"""

import hashlib
import re
from typing import Final, NamedTuple

from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.auth.policy import Policy
from berth.api.kernel.auth.rules import IS_ADMIN
from berth.model.rejections import (
    CapacityExceeded,
    GroupFull,
    GroupPolicyBroken,
    NoFit,
    NoInventory,
    Rejection,
    UnitsViolated,
)
from berth.model.servers import Flavor, Image, Server
from berth.view import View


class Access(NamedTuple):
    policy: Policy
    caller: Caller

    def allows(self, rule: str, project: str | None = None) -> bool:
        """Whether the caller may do what the rule guards, to what belongs to ``project``, or else to its
        own."""
        return self.policy.allows(rule, self.caller, project)

    @property
    def is_admin(self) -> bool:
        return self.allows(IS_ADMIN)

    @property
    def sees_hosts(self) -> bool:
        """Whether the names of hosts, and how many there are, are for the caller."""
        return self.is_admin or self.allows("auditor_api")

    def sees(self, project: str | None) -> bool:
        """Whether what belongs to a project is there for the caller."""
        return project == self.caller.project_id or self.is_admin

    def may_use_flavor(self, flavor: Flavor) -> bool:
        return flavor.is_public or self.caller.project_id in flavor.projects or self.is_admin

    def may_use_image(self, image: Image) -> bool:
        """A member sees the image whatever it has said of it."""
        return (
            image.visibility in ("public", "community")
            or self.sees(image.owner)
            or image.find_member(self.caller.project_id) is not None
        )

    def finds_by_name(self, image: Image) -> bool:
        """Whether the image may be meant by its name. Anybody can give an image a name that others use: one
        of another project that is not public, and that was not accepted, must be asked for by its id."""
        member = image.find_member(self.caller.project_id)
        return (
            image.visibility == "public"
            or image.owner == self.caller.project_id
            or (member is not None and member.status == "accepted")
        )


def policy_refusal(rule: str) -> str:
    """What a caller is told that a rule does not allow."""
    return f"Policy doesn't allow {rule} to be performed."


# -- what is told of hosts -----------------------------------------------------------------------


NO_PLACE: Final = "No valid host was found."
_NO_PLACE: Final = (NoFit, GroupPolicyBroken, GroupFull, CapacityExceeded, NoInventory, UnitsViolated)
_WORD: Final = re.compile(r"\b(host )?(\w[\w.-]*\w|\w)")
_UNIT: Final = re.compile(r"\bunit \S+(?= of\b)")
_PCI_ADDRESS: Final = re.compile(r"\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b", re.IGNORECASE)
_PART_END: Final = re.compile(r"[._-]")
_UNMET: Final = re.compile(r" for (the (?:group \S+ of the )?need \S+): 0 hosts left")
_LEDGERS: Final = "resource provider"
"""Words of a refusal that goes on to say what the provider has."""


def make_host_id(project: str, host: str | None) -> str:
    """What tells hosts apart without naming them; another for every project."""
    return "" if host is None else hashlib.sha224(f"{project}{host}".encode()).hexdigest()


def is_no_place(rejection: Rejection) -> bool:
    """Whether it means: there is no place for it now."""
    return isinstance(rejection, _NO_PLACE)


def explain_no_place(server: Server, why: str) -> str:
    """What of a request can be changed, where there is no place for it; ``why`` is the whole refusal."""
    asked = [f"the flavor {server.flavor.name}"]
    if server.zone is not None:
        asked.append(f"the availability zone {server.zone}")
    if server.group is not None:
        asked.append("the server group")
    if server.hints.same_host or server.hints.different_host:
        asked.append("the scheduler hints")
    if any(name.startswith("trait:") for name in server.image_properties):
        asked.append("the traits that the image requires")
    asked += [f"the need {need.name}" for need in server.needs]
    return f"{NO_PLACE} {_name_unmet(why)} Change {' or '.join(asked)}, or retry later."


def no_place(why: str = "") -> str:
    """What a caller that is not told of hosts learns of a refusal. ``why``: the whole of it, in words."""
    return f"{NO_PLACE} {_name_unmet(why)} Ask for less, or retry later."


def _name_unmet(why: str) -> str:
    """The need that no host can meet, if that is why."""
    unmet = _UNMET.search(why)
    return "Nothing free fits the request." if unmet is None else f"No host can meet {unmet[1]}."


def show_failure(access: Access, view: View, server: Server, text: str) -> str:
    """What a record says of a failure, as the caller may read it."""
    if access.sees_hosts:
        return text
    if NO_PLACE in text:
        return explain_no_place(server, text)
    if _LEDGERS in text:
        return "What it needs could not be claimed. Retry later, or ask an administrator."
    # Units are known by the word before them, or by being PCI addresses.
    text = _PCI_ADDRESS.sub("a device", _UNIT.sub("unit", text))
    return _WORD.sub(lambda found: _hidden(view, found), text)


def _hidden(view: View, found: re.Match[str]) -> str:
    lead, word = found[1] or "", found[2]
    # What a host has is often called by the host's name and more: host-2_0000, host-2.example.net.
    named = (word, *(word[: end.start()] for end in _PART_END.finditer(word)))
    if any(name in view.names or name in view.providers for name in named):
        return "host" if lead else "a host"
    return f"{lead}{word}"
