"""Who may do what: the default rules of every API (``rules``), and an operator's file on top.

The rules are evaluated by oslo.policy, so that a policy.yaml written for Placement, Nova or Glance means
here what it means there. Scope comes first: a token that is not of a project (of the whole system, of a
domain, of nothing) is refused, whatever a file says. A decision depends on the rule, the caller and the
target alone; it is made once and remembered until the file changes. A file that cannot be used is refused
at the start; later it is reported, and the rules read before stay.
"""

import logging
import os
import re
from pathlib import Path
from typing import Any, Final, Literal

from oslo_config import cfg
from oslo_policy import policy as oslo

from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.auth.followed_file import FollowedFile
from berth.api.kernel.auth.rules import RULES
from berth.runtime.clock import Clock

_log = logging.getLogger(__name__)

DECISIONS_MAX: Final = 50_000
"""Decisions remembered at most; then all are forgotten and made anew."""

_GUARDED: Final = ("placement:", "berth:", "os_compute_api:", "compute:", "identity:")
"""How the names of rules that guard something begin. Glance's have no beginning of their own."""

_ROLES: Final = ["reader", "member", "manager", "admin", "service", "operator", "auditor"]
_REMOTE: Final = re.compile(r"(?<![\w.])https?:")


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
        if not caller.project_id or caller.system_scope is not None or caller.domain_id is not None:
            return False
        # Glance's rules call the project of an image its owner, and one that it is shared with a member.
        target: dict[str, Any] = {"project_id": project_id, "owner": project_id, "member_id": project_id}
        if project_id is None:
            own = caller.project_id
            target = {"project_id": own, "owner": own, "member_id": own, "user_id": caller.user_id}
        credentials: dict[str, Any] = {
            "user_id": caller.user_id,
            "project_id": caller.project_id,
            "roles": list(caller.roles),
            "system_scope": caller.system_scope,
            "domain_id": caller.domain_id,
            "is_admin_project": True,
        }
        try:
            return bool(self._enforcer.authorize(rule, target, credentials, do_raise=False))
        except Exception:
            # The rules of a file are tried when it is read; one may still fail for some callers only.
            _log.exception("%s: cannot evaluate the rule %s, access denied", self._path, rule)
            return False

    # -- the file -------------------------------------------------------------------------------

    def _read_again(self) -> None:
        try:
            self._enforcer = self._load()
        except PolicyFileError as error:
            _log.error("the old rules stay in force: %s", error)
            return
        self._decisions.clear()
        _log.info("%s: changed, read the rules again", self._path)

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
        if self._path is not None:
            _refuse_failing(enforcer, self._path)
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
        text = path.read_text(encoding="utf-8")
        oslo.Rules.load(text)
        remote = sorted(name for name, rule in oslo.parse_file_contents(text).items() if _is_remote(rule))
    except OSError as error:
        raise PolicyFileError(f"{path}: cannot read the policy: {error.strerror}") from error
    # The parser passes on what its YAML reader and its own checks raise, of several kinds.
    except Exception as error:
        raise PolicyFileError(f"{path}: invalid policy file: {error}") from error
    if remote:
        raise PolicyFileError(
            f"{path}: the rule {remote[0]} calls a URL, which is not supported: all requests would wait for "
            "the answer"
        )


def _is_remote(rule: object) -> bool:
    return _REMOTE.search(str(rule)) is not None


def _refuse_failing(enforcer: oslo.Enforcer, path: Path) -> None:
    """Refuse rules that cannot be evaluated, such as those that refer to each other in a circle."""
    target = {"project_id": "", "owner": "", "member_id": "", "user_id": ""}
    for rule in RULES:
        for roles in ([], _ROLES):
            credentials = target | {"roles": roles}
            try:
                enforcer.authorize(rule.name, target, credentials, do_raise=False)
            except Exception as error:
                raise PolicyFileError(
                    f"{path}: cannot evaluate the rule {rule.name}: it refers to itself, or {error}"
                ) from error


def _warn_of_unknown(enforcer: oslo.Enforcer, path: Path) -> None:
    known = {rule.name for rule in RULES}
    unknown = sorted(name for name in enforcer.file_rules if name.startswith(_GUARDED) and name not in known)
    if unknown:
        _log.warning("%s: no route uses these rules: %s", path, ", ".join(unknown))
