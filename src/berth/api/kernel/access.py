"""What one caller may do, and which objects are there for it: the one place that every API asks.

    scope -> the named rule (``Policy``) -> whose object it is

A caller acts in one project. What belongs to another is not there for it, unless the rule
``context_is_admin`` makes it an administrator. No other module knows the name of a role.
"""

from typing import NamedTuple

from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.auth.policy import Policy
from berth.api.kernel.auth.rules import IS_ADMIN
from berth.model.servers import Flavor, Image


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
        return self.is_admin or self.allows("admin_or_service_api")

    def sees(self, project: str | None) -> bool:
        """Whether what belongs to a project is there for the caller."""
        return project == self.caller.project_id or self.is_admin

    def may_use_flavor(self, flavor: Flavor) -> bool:
        return flavor.is_public or self.caller.project_id in flavor.projects or self.is_admin

    def may_use_image(self, image: Image) -> bool:
        return image.visibility in ("public", "community") or self.sees(image.owner)

    def finds_by_name(self, image: Image) -> bool:
        """Whether the image may be meant by its name. Anybody can give an image a name that others use: one
        of another project that is not public must be asked for by its id."""
        return image.visibility == "public" or image.owner == self.caller.project_id


def policy_refusal(rule: str) -> str:
    """What a caller is told that a rule does not allow."""
    return f"Policy doesn't allow {rule} to be performed."
