"""Who may do what: OpenStack Placement's rules under their own names, those of /berth/v1 beside them, and
an operator's file on top.

The rules are evaluated by oslo.policy, so that a policy.yaml written for Placement means here what it
means there. Every rule is for tokens of a project: one of the whole system or of a domain is refused,
whatever a file says. A decision depends on the rule, the caller and the target alone; it is made once and
remembered until the file changes. A file that cannot be used is refused at the start; later it is
reported, and the rules read before stay.
"""

import logging
import os
from pathlib import Path
from typing import Any, Final, Literal

from oslo_config import cfg
from oslo_policy import policy as oslo

from berth.api.auth.caller import Caller
from berth.api.auth.followed_file import FollowedFile
from berth.runtime.clock import Clock

_log = logging.getLogger(__name__)

DECISIONS_MAX: Final = 50_000
"""Decisions remembered at most; then all are forgotten and made anew."""

_GUARDED: Final = ("placement:", "berth:")
"""How the names of rules that guard something begin."""

# -- the rules ----------------------------------------------------------------------------------

_PROJECT: Final = ["project"]

_FORMER: Final = oslo.DeprecatedRule(
    name="rule:admin_api",
    check_str="role:admin",
    deprecated_reason="Roles other than admin exist for this.",
    deprecated_since="Wallaby",
)
"""What the legacy defaults allow besides the secure ones."""

_ADMIN_OR_SERVICE: Final = "rule:admin_or_service_api"
_SERVICE: Final = "rule:service_api"
_USAGE: Final = "rule:admin_or_project_reader_or_service_api"

_BLOCKS: Final = (
    oslo.RuleDefault("admin_api", "role:admin", scope_types=_PROJECT),
    oslo.RuleDefault("service_api", "role:service", scope_types=_PROJECT, deprecated_rule=_FORMER),
    oslo.RuleDefault(
        "admin_or_service_api", "role:admin or role:service", scope_types=_PROJECT, deprecated_rule=_FORMER
    ),
    oslo.RuleDefault(
        "project_reader_api", "role:reader and project_id:%(project_id)s", deprecated_rule=_FORMER
    ),
    oslo.RuleDefault(
        "admin_or_project_reader_or_service_api",
        "role:admin or rule:project_reader_api or role:service",
        scope_types=_PROJECT,
        deprecated_rule=_FORMER,
    ),
)
"""Rules that guard nothing themselves; the others are made of them."""

_GUARDS: Final = {
    "resource_providers:list": _ADMIN_OR_SERVICE,
    "resource_providers:create": _ADMIN_OR_SERVICE,
    "resource_providers:show": _ADMIN_OR_SERVICE,
    "resource_providers:update": _ADMIN_OR_SERVICE,
    "resource_providers:delete": _ADMIN_OR_SERVICE,
    "resource_classes:list": _ADMIN_OR_SERVICE,
    "resource_classes:create": _ADMIN_OR_SERVICE,
    "resource_classes:show": _ADMIN_OR_SERVICE,
    "resource_classes:update": _ADMIN_OR_SERVICE,
    "resource_classes:delete": _ADMIN_OR_SERVICE,
    "resource_providers:inventories:list": _ADMIN_OR_SERVICE,
    "resource_providers:inventories:create": _ADMIN_OR_SERVICE,
    "resource_providers:inventories:show": _ADMIN_OR_SERVICE,
    "resource_providers:inventories:update": _ADMIN_OR_SERVICE,
    "resource_providers:inventories:delete": _ADMIN_OR_SERVICE,
    "resource_providers:aggregates:list": _ADMIN_OR_SERVICE,
    "resource_providers:aggregates:update": _ADMIN_OR_SERVICE,
    "resource_providers:usages": _ADMIN_OR_SERVICE,
    "usages": _USAGE,
    "traits:list": _ADMIN_OR_SERVICE,
    "traits:show": _ADMIN_OR_SERVICE,
    "traits:update": _ADMIN_OR_SERVICE,
    "traits:delete": _ADMIN_OR_SERVICE,
    "resource_providers:traits:list": _ADMIN_OR_SERVICE,
    "resource_providers:traits:update": _ADMIN_OR_SERVICE,
    "resource_providers:traits:delete": _ADMIN_OR_SERVICE,
    "allocations:manage": _ADMIN_OR_SERVICE,
    "allocations:list": _ADMIN_OR_SERVICE,
    "allocations:update": _ADMIN_OR_SERVICE,
    "allocations:delete": _ADMIN_OR_SERVICE,
    "resource_providers:allocations:list": _ADMIN_OR_SERVICE,
    "allocation_candidates:list": _ADMIN_OR_SERVICE,
    "reshaper:reshape": _SERVICE,
}
"""What each operation asks for. In a policy file the names begin with ``placement:``."""

_NATIVE_GUARDS: Final = (
    "consumers:list",
    "allocations:list",
    "usage:show",
    "events:list",
    "groups:list",
    "groups:show",
    "groups:create",
    "groups:update",
    "groups:delete",
    "aggregates:list",
    "aggregates:update",
    "hosts:list",
    "hosts:update",
    "schedule",
    "explain",
    "capacity",
    "needs:list",
    "needs:show",
    "needs:update",
    "needs:delete",
    "doctor:examine",
    "doctor:repair",
)
"""What the operations of /berth/v1 ask for. In a policy file the names begin with ``berth:``."""

_MEMBER: Final = "role:admin or role:service or role:member"

_USER_GUARDS: Final = {
    "clusters:list": f"{_MEMBER} or role:reader",
    "clusters:show": f"{_MEMBER} or role:reader",
    "clusters:create": _MEMBER,
    "clusters:update": _MEMBER,
    "clusters:delete": _MEMBER,
}
"""Operations of /berth/v1 for those whose servers they are about. Whoever is no administrator sees the
clusters of its own project alone, whatever a file says."""

RULES: Final = (
    *_BLOCKS,
    *(oslo.RuleDefault(f"placement:{name}", check, scope_types=_PROJECT) for name, check in _GUARDS.items()),
    *(oslo.RuleDefault(f"berth:{name}", _ADMIN_OR_SERVICE, scope_types=_PROJECT) for name in _NATIVE_GUARDS),
    *(oslo.RuleDefault(f"berth:{name}", check, scope_types=_PROJECT) for name, check in _USER_GUARDS.items()),
)


class PolicyFileError(Exception):
    """The policy file cannot be used. The message names it."""


# -- deciding -----------------------------------------------------------------------------------


class Policy:
    """Decides. The constructor raises PolicyFileError if the file cannot be used."""

    def __init__(self, path: str | None, defaults: Literal["legacy", "secure"], clock: Clock) -> None:
        self._path = Path(path).absolute() if path is not None else None
        self._conf = _private_conf(enforce_new_defaults=defaults == "secure")
        self._file = FollowedFile(self._path, clock) if self._path is not None else None
        self._enforcer = self._load()
        self._decisions: dict[tuple[str, Caller, str | None], bool] = {}

    def allows(self, rule: str, caller: Caller, project_id: str | None = None) -> bool:
        """Whether the caller may do what the rule guards, to ``project_id`` or else its own project."""
        if self._file is not None and self._file.has_changed():
            self._read_again()
        key = (rule, caller, project_id)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(rule, caller, project_id)
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()
            self._decisions[key] = decision
        return decision

    def _decide(self, rule: str, caller: Caller, project_id: str | None) -> bool:
        target: dict[str, Any] = {"project_id": project_id}
        if project_id is None:
            target = {"project_id": caller.project_id, "user_id": caller.user_id}
        credentials: dict[str, Any] = {
            "user_id": caller.user_id,
            "project_id": caller.project_id,
            "roles": list(caller.roles),
            "system_scope": caller.system_scope,
            "domain_id": caller.domain_id,
            "is_admin_project": True,
        }
        return bool(self._enforcer.authorize(rule, target, credentials, do_raise=False))

    # -- the file -------------------------------------------------------------------------------

    def _read_again(self) -> None:
        try:
            self._enforcer = self._load()
        except PolicyFileError as error:
            _log.error("the rules read before stay: %s", error)
            return
        self._decisions.clear()
        _log.info("%s: rules read again", self._path)

    def _load(self) -> oslo.Enforcer:
        if self._path is not None:
            _refuse_unusable(self._path)
        # oslo.policy looks in several places for a file that is not named; the empty one is a file too.
        enforcer = oslo.Enforcer(self._conf, policy_file=str(self._path or os.devnull))
        enforcer.suppress_default_change_warnings = True
        enforcer.suppress_deprecation_warnings = True
        enforcer.register_defaults(RULES)
        enforcer.load_rules()
        # Otherwise the enforcer would look at the file for every decision, and reload it by itself.
        enforcer.use_conf = False
        _warn_of_unknown(enforcer, self._path)
        return enforcer


def _private_conf(*, enforce_new_defaults: bool) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    conf([], project="berth", default_config_files=[], default_config_dirs=[])
    oslo.Enforcer(conf, policy_file=os.devnull)  # Registers the options that are set next.
    conf.set_override("policy_dirs", [], group="oslo_policy")
    conf.set_override("enforce_new_defaults", enforce_new_defaults, group="oslo_policy")
    return conf


def _refuse_unusable(path: Path) -> None:
    try:
        oslo.Rules.load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PolicyFileError(f"{path}: the policy cannot be read: {error.strerror}") from error
    # The parser passes on what its YAML reader and its own checks raise, of several kinds.
    except Exception as error:
        raise PolicyFileError(f"{path}: this is not a policy file: {error}") from error


def _warn_of_unknown(enforcer: oslo.Enforcer, path: Path | None) -> None:
    known = {rule.name for rule in RULES}
    unknown = sorted(name for name in enforcer.file_rules if name.startswith(_GUARDED) and name not in known)
    if unknown:
        _log.warning("%s: no operation asks for these rules: %s", path, ", ".join(unknown))
