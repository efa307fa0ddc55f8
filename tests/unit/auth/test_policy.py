"""Policy: the defaults, an operator's file, and the file changing under a running process."""

import json
import logging
from pathlib import Path

import pytest

from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.auth.policy import Policy, PolicyFileError
from berth.api.kernel.auth.rules import RULES
from berth.api.native.routes import ROUTES
from tests.clocks import FakeClock

pytestmark = pytest.mark.fast

ADMIN = Caller("a", "p", ("admin",))
SERVICE = Caller("s", "p", ("service",))
READER = Caller("r", "p", ("reader",))
NOBODY = Caller("n", "p", ())
SYSTEM_ADMIN = Caller("a", None, ("admin", "service"), system_scope="all")
DOMAIN_ADMIN = Caller("a", None, ("admin", "service"), domain_id="d")

GUARDS = [rule.name for rule in RULES if rule.name.startswith("placement:")]
BLOCKS = {rule.name for rule in RULES if ":" not in rule.name and "image" not in rule.name} - {
    "get_members",
    "deactivate",
    "reactivate",
}
OTHERS = ("placement:", "berth:", "identity:")
OWN_USER = "(rule:context_is_admin) or user_id:%(user_id)s"
RESHAPE, USAGES = "placement:reshaper:reshape", "placement:usages"


def allowed(policy: Policy, caller: Caller, project_id: str | None = None) -> set[str]:
    return {rule for rule in GUARDS if policy.allows(rule, caller, project_id)}


def write(directory: Path, text: str) -> str:
    path = directory / "policy.yaml"
    path.write_text(text)
    return str(path)


def opened() -> str:
    return "".join(f'"{rule.name}": "@"\n' for rule in RULES if rule.name != "admin_api")


# -- defaults -----------------------------------------------------------------------------------


def test_legacy_defaults_allow_admins_and_services_everything() -> None:
    policy = Policy(None, "legacy", FakeClock())
    assert allowed(policy, ADMIN) == set(GUARDS)
    assert allowed(policy, SERVICE) == set(GUARDS)
    assert allowed(policy, NOBODY) == set()


def test_secure_defaults_leave_the_reshaper_to_services() -> None:
    policy = Policy(None, "secure", FakeClock())
    assert allowed(policy, ADMIN) == set(GUARDS) - {RESHAPE}
    assert allowed(policy, SERVICE) == set(GUARDS)
    assert allowed(policy, NOBODY) == set()


@pytest.mark.parametrize("defaults", ["legacy", "secure"])
def test_readers_see_the_usages_of_their_project(defaults: str) -> None:
    policy = Policy(None, "secure" if defaults == "secure" else "legacy", FakeClock())
    assert allowed(policy, READER, "p") == {USAGES}
    assert allowed(policy, READER, "other") == set()
    assert policy.allows(USAGES, ADMIN, "other")
    assert policy.allows(USAGES, SERVICE, "other")


@pytest.mark.parametrize("caller", [SYSTEM_ADMIN, DOMAIN_ADMIN])
@pytest.mark.parametrize("text", ["", opened()])
def test_tokens_that_are_not_of_a_project(tmp_path: Path, caller: Caller, text: str) -> None:
    path = write(tmp_path, text)
    assert allowed(Policy(path, "legacy", FakeClock()), caller, "p") == set()
    assert allowed(Policy(path, "secure", FakeClock()), caller, "p") == set()


def test_open_is_open_to_everybody_else(tmp_path: Path) -> None:
    policy = Policy(write(tmp_path, opened()), "legacy", FakeClock())
    assert allowed(policy, NOBODY) == set(GUARDS)


def test_the_rules_are_upstreams() -> None:
    policies = pytest.importorskip("placement.policies")
    ours = {rule.name: (rule.check_str, tuple(rule.scope_types or ())) for rule in RULES}
    theirs = {rule.name: (rule.check_str, tuple(rule.scope_types or ())) for rule in policies.list_rules()}
    assert {name: ours.get(name) for name in theirs} == theirs
    assert {name for name in ours if name.startswith("placement:")} <= theirs.keys()


ANYBODY = {
    "@": "rule:known_role",
    # The setting cross_cell_moves keeps that off.
    "!": "rule:context_is_admin",
    "rule:service_or_admin": "rule:admin_or_service_api",
    OWN_USER: "(rule:context_is_admin) or (user_id:%(user_id)s and rule:known_role)",
}


def test_the_rules_of_compute_and_image_are_upstreams() -> None:
    """But that everybody is everybody with a role that is known. The file says what Nova and Glance have."""
    upstream = json.loads((Path(__file__).parents[2] / "golden" / "upstream_rules.json").read_text())
    theirs = {name: check for rules in upstream.values() for name, check in rules.items()}
    guarding = {rule.name: rule.check_str for rule in RULES if rule.name not in BLOCKS}
    ours = {name: check for name, check in guarding.items() if not name.startswith(OTHERS)}
    assert ours == {name: ANYBODY.get(check, check) for name, check in theirs.items()}
    assert all(rule.scope_types == ["project"] for rule in RULES if rule.name in ours)


def test_rules_of_our_own_are_for_admins_and_services() -> None:
    policy = Policy(None, "secure", FakeClock())
    guarded = {route.policy or "" for route in ROUTES}
    users = ("berth:clusters:", "berth:openapi:", "berth:devices:", "berth:caller:")
    own = {rule for rule in guarded if not rule.startswith(users)}
    for caller, allows in ((ADMIN, True), (SERVICE, True), (READER, False), (SYSTEM_ADMIN, False)):
        assert {policy.allows(rule, caller) for rule in own} == {allows}


def test_clusters_are_for_users() -> None:
    policy = Policy(None, "secure", FakeClock())
    member = Caller("m", "p", ("member", "reader"))
    rules = {f"berth:clusters:{name}" for name in ("list", "show", "create", "update", "delete")}
    for caller, allowed in (
        (ADMIN, rules),
        (SERVICE, rules),
        (member, rules),
        (READER, {"berth:clusters:list", "berth:clusters:show"}),
        (SYSTEM_ADMIN, set()),
        (Caller("g", "p", ()), set()),
    ):
        assert {rule for rule in rules if policy.allows(rule, caller)} == allowed


# -- an operator's file -------------------------------------------------------------------------


def test_one_rule_is_changed_and_the_others_stay(tmp_path: Path) -> None:
    path = write(tmp_path, '"placement:traits:list": "role:stranger"\n')
    policy = Policy(path, "legacy", FakeClock())
    assert allowed(policy, Caller("x", "p", ("stranger",))) == {"placement:traits:list"}
    assert allowed(policy, ADMIN) == set(GUARDS) - {"placement:traits:list"}


def test_a_building_block_is_changed(tmp_path: Path) -> None:
    path = write(tmp_path, '"admin_or_service_api": "role:operator"\n')
    policy = Policy(path, "secure", FakeClock())
    assert policy.allows("placement:traits:list", Caller("x", "p", ("operator",)))
    assert not policy.allows("placement:traits:list", ADMIN)


def test_decisions_about_users_are_not_mixed_up(tmp_path: Path) -> None:
    policy = Policy(write(tmp_path, '"placement:traits:list": "user_id:x"\n'), "legacy", FakeClock())
    assert policy.allows("placement:traits:list", Caller("x", "p", ()))
    assert not policy.allows("placement:traits:list", Caller("y", "p", ()))


def test_changes_are_followed_once_a_second(tmp_path: Path) -> None:
    clock = FakeClock()
    policy = Policy(write(tmp_path, ""), "legacy", clock)
    assert not policy.allows(RESHAPE, NOBODY)
    write(tmp_path, f'"{RESHAPE}": "@"\n')
    clock.advance(0.9)
    assert not policy.allows(RESHAPE, NOBODY)
    clock.advance(0.1)
    assert policy.allows(RESHAPE, NOBODY)


def test_a_broken_or_missing_change_is_reported_once_and_not_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    path = write(tmp_path, f'"{RESHAPE}": "!"\n')
    policy = Policy(path, "legacy", clock)
    with caplog.at_level(logging.ERROR, logger="berth"):
        write(tmp_path, "[not a policy")
        for _ in range(3):
            clock.advance(1)
            assert not policy.allows(RESHAPE, ADMIN)
        Path(path).unlink()
        clock.advance(1)
        assert not policy.allows(RESHAPE, ADMIN)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert f"{path}: invalid policy file" in messages[0]
    assert f"{path}: cannot read the policy" in messages[1]


@pytest.mark.parametrize("text", ["[not a policy", "- a\n- list\n"])
def test_a_broken_file_is_refused_at_the_start(tmp_path: Path, text: str) -> None:
    with pytest.raises(PolicyFileError, match="invalid policy file"):
        Policy(write(tmp_path, text), "legacy", FakeClock())


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({RESHAPE: "rule:a", "a": "rule:b", "b": "rule:a"}, f"cannot evaluate the rule {RESHAPE}"),
        ({RESHAPE: "user_id:%(user_id)d"}, f"cannot evaluate the rule {RESHAPE}"),
        ({RESHAPE: "role:admin and user_id:%(user_id)d"}, f"cannot evaluate the rule {RESHAPE}"),
        ({RESHAPE: "role:admin or http://127.0.0.1:9/ask"}, f"{RESHAPE} calls a URL"),
        ({RESHAPE: [["role:admin"], ["https:%(project_id)s"]]}, f"{RESHAPE} calls a URL"),
    ],
)
def test_a_rule_that_cannot_be_evaluated_is_refused_at_the_start(
    tmp_path: Path, rules: dict[str, object], words: str
) -> None:
    """Every request that asked for it was answered with 500, or waited for a URL with all others."""
    with pytest.raises(PolicyFileError, match=words):
        Policy(write(tmp_path, json.dumps(rules)), "secure", FakeClock())


def test_a_rule_that_fails_for_a_caller_allows_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = Policy(
        write(tmp_path, f'"{RESHAPE}": "role:odd and user_id:%(user_id)d"\n'), "secure", FakeClock()
    )
    assert not policy.allows(RESHAPE, Caller("x", "p", ("odd",)))
    assert f"cannot evaluate the rule {RESHAPE}, access denied" in caplog.text


def test_a_missing_file_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(PolicyFileError, match="cannot read the policy: No such file or directory"):
        Policy(str(tmp_path / "none.yaml"), "legacy", FakeClock())


def test_a_rule_that_nothing_asks_for_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = '"placement:trait:list": "@"\n"berth:usage:list": "@"\n"berth:usage:show": "@"\n'
    Policy(write(tmp_path, text), "legacy", FakeClock())
    assert "no route uses these rules: berth:usage:list, placement:trait:list\n" in caplog.text


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.api.kernel.auth.policy.DECISIONS_MAX", 3)
    policy = Policy(None, "legacy", FakeClock())
    for number in range(10):
        assert policy.allows(RESHAPE, Caller(f"u{number}", "p", ("admin",)))
    assert len(policy._decisions) <= 3
