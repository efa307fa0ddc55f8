"""Settings: which source wins, and what is said of those that are refused."""

import json
from pathlib import Path

import pytest

from berth.runtime.settings import TABLE, Settings, SettingsError, conflicts, refuse_conflicts, resolve
from berth.scheduler import plugins

pytestmark = pytest.mark.fast


def toml(directory: Path, text: str) -> str:
    path = directory / "berth.toml"
    path.write_text(text)
    return str(path)


def refusal(
    config: str | None = None, environ: dict[str, str] | None = None, flags: dict[str, str] | None = None
) -> str:
    with pytest.raises(SettingsError) as caught:
        refuse_conflicts(resolve(config, environ, flags))
    return str(caught.value)


# -- precedence ---------------------------------------------------------------------------------


def test_defaults_stand_alone() -> None:
    resolved = resolve()
    assert resolved.settings == Settings()
    assert resolved.origins == {}


def test_later_sources_win(tmp_path: Path) -> None:
    config = toml(tmp_path, 'workers = 2\nlog_level = "debug"\nauth = "tokens"')
    environ = {"BERTH_WORKERS": "3", "BERTH_LOG_LEVEL": "error", "HOME": "/root"}
    resolved = resolve(config, environ, {"workers": "4"})
    assert resolved.settings.workers == 4
    assert resolved.settings.log_level == "error"
    assert resolved.settings.auth == "tokens"
    assert resolved.origins == {"workers": "--workers", "log_level": "BERTH_LOG_LEVEL", "auth": config}


def test_the_file_can_be_named_by_a_variable_and_a_flag_wins(tmp_path: Path) -> None:
    by_variable = toml(tmp_path, "workers = 2")
    assert resolve(None, {"BERTH_CONFIG": by_variable}).settings.workers == 2
    other = tmp_path / "other.toml"
    other.write_text("workers = 5")
    assert resolve(str(other), {"BERTH_CONFIG": by_variable}).settings.workers == 5


def test_every_setting_can_be_given_as_its_default_in_every_source(tmp_path: Path) -> None:
    """The table, the file, the variables and the flags speak of the same settings."""
    lines, environ = [], {}
    for setting in TABLE:
        if setting.default is None:
            continue
        default = setting.default
        environ[setting.variable] = ",".join(default) if setting.kind is tuple else str(default).lower()
        if setting.kind is str:
            environ[setting.variable] = default
        # Texts, lists of them and truth values are written in TOML as in JSON.
        lines.append(f"{setting.name} = {json.dumps(default)}")
    assert resolve(toml(tmp_path, "\n".join(lines))).settings == Settings()
    assert resolve(None, environ).settings == Settings()


def test_texts_become_lists_and_truth_values() -> None:
    given = {"BERTH_CORS_ALLOWED_ORIGINS": "http://a, http://b", "BERTH_KEYSTONE_INSECURE": "Yes"}
    settings = resolve(None, given).settings
    assert settings.cors_allowed_origins == ("http://a", "http://b")
    assert settings.keystone_insecure is True


@pytest.mark.parametrize("between", [",", ", "])
def test_commas_in_a_json_object_do_not_end_it(between: str) -> None:
    aliases = (
        '{"name": "gpu", "vendor_id": "10de", "product_id": "20b2"}',
        '{"name": "vf", "resource_class": "SRIOV_NET_VF", "traits": "CUSTOM_A,CUSTOM_}"}',
    )
    assert resolve(None, {"BERTH_PCI_ALIASES": between.join(aliases)}).settings.pci_aliases == aliases
    assert resolve(None, None, {"pci_aliases": between.join(aliases)}).settings.pci_aliases == aliases


def test_what_begins_like_a_json_object_and_is_none_is_kept_whole() -> None:
    for text in ('{"name": "gpu", "vendor_id": 7', '{"name": "gpu", "x": 1} y'):
        assert resolve(None, {"BERTH_PCI_ALIASES": text}).settings.pci_aliases == (text,)


@pytest.mark.parametrize(
    ("listen", "host", "port"), [("10.0.0.1:80", "10.0.0.1", 80), ("[::1]:8778", "::1", 8778)]
)
def test_listen_is_taken_apart(listen: str, host: str, port: int) -> None:
    settings = Settings(listen=listen)
    assert (settings.listen_host, settings.listen_port) == (host, port)


def test_every_number_has_a_range_and_every_default_is_allowed() -> None:
    for setting in TABLE:
        if setting.kind in (int, float):
            assert setting.about.low is not None, setting.name
            assert setting.about.high is not None, setting.name
            assert setting.about.low <= setting.default <= setting.about.high, setting.name


def test_a_number_may_have_a_fraction_where_that_makes_sense(tmp_path: Path) -> None:
    for text, value in (("0.25", 0.25), ("1", 1.0), ("0", 0.0)):
        read = resolve(toml(tmp_path, f"trace_ratio = {text}")).settings.trace_ratio
        assert (read, type(read)) == (value, float)
        assert resolve(None, {"BERTH_TRACE_RATIO": text}).settings.trace_ratio == value


@pytest.mark.parametrize("given", ["1.1", "-0.1", "nan", "inf", "half"])
def test_a_ratio_is_from_0_to_1(given: str) -> None:
    assert refusal(flags={"trace_ratio": given}).endswith(
        "is refused: it must be a number from 0 to 1 (from --trace-ratio)"
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("127.0.0.1:4318", "expected http:// or https://"),
        ("http://user:secret@collector:4318", "a host without user and password"),
        ("http://collector:4318/", "without a slash at its end"),
        ("http://collector:4318/?a=b", "optionally a path"),
        ("http://collector:4318/v1/traces", "/v1/traces is appended to it: leave it out"),
    ],
)
def test_an_endpoint_of_traces_is_the_address_of_a_collector(given: str, why: str) -> None:
    message = refusal(flags={"trace_endpoint": given})
    assert why in message
    assert "secret" not in message


def test_a_ratio_needs_an_endpoint() -> None:
    assert conflicts(Settings(trace_ratio=0.5)) == "trace_ratio: it has no meaning without trace_endpoint"
    assert conflicts(Settings(trace_ratio=0.5, trace_endpoint="http://h:4318")) is None


# -- refusals: unknown names --------------------------------------------------------------------


def test_unknown_key_in_the_file(tmp_path: Path) -> None:
    config = toml(tmp_path, "worker = 2")
    assert refusal(config) == f"{config}: unknown setting worker; did you mean workers?"


def test_unknown_key_like_nothing_else(tmp_path: Path) -> None:
    config = toml(tmp_path, "zzz = 2")
    assert refusal(config) == f"{config}: unknown setting zzz; 'berth settings' lists all settings"


def test_a_table_in_the_file(tmp_path: Path) -> None:
    config = toml(tmp_path, "[keystone]\nauth_url = 'http://k'")
    assert refusal(config) == f"{config}: unknown table [keystone]; settings are plain keys, without tables"


def test_an_unknown_variable_is_refused() -> None:
    message = refusal(environ={"BERTH_WORKER": "2"})
    assert message == "environment: unknown variable BERTH_WORKER; did you mean BERTH_WORKERS?"


# -- refusals: the file itself ------------------------------------------------------------------


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "none.toml")
    assert refusal(path) == f"{path}: cannot read the settings: No such file or directory"


def test_a_file_that_is_not_toml_is_refused(tmp_path: Path) -> None:
    config = toml(tmp_path, "workers: 2")
    assert refusal(config).startswith(f"{config}: invalid TOML: ")


# -- refusals: values ---------------------------------------------------------------------------

_HOST_PORT = "HOST:PORT is expected, an IPv6 address in brackets: 127.0.0.1:8778 or [::1]:8778"


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        ("workers", "many", "it must be a whole number from 1 to 64"),
        ("workers", "0", "it must be a whole number from 1 to 64"),
        ("workers", "65", "it must be a whole number from 1 to 64"),
        ("auth", "none", "it must be one of noauth, tokens, keystone"),
        ("keystone_insecure", "maybe", "it must be true or false"),
        ("tokens_file", "", "it is empty; leave the setting out instead"),
        ("max_allocation_candidates", "0", "with 0 no query could return a candidate; use -1 for no limit"),
        ("listen", "8778", _HOST_PORT),
        ("listen", ":8778", _HOST_PORT),
        ("listen", "::1:8778", _HOST_PORT),
        ("listen", "127.0.0.1:0", "the port must be a number from 1 to 65535"),
        ("listen", "127.0.0.1:http", "the port must be a number from 1 to 65535"),
    ],
)
def test_bad_values_are_refused_by_name(name: str, given: str, why: str) -> None:
    """The message says what was given, what is allowed and where it came from."""
    variable = f"BERTH_{name.upper()}"
    given_as = given if not given.lstrip("-").isdigit() or name == "listen" else int(given)
    flag = "--" + name.replace("_", "-")
    assert refusal(environ={variable: given}) == f"{name}: {given_as!r} is refused: {why} (from {variable})"
    assert refusal(flags={name: given}) == f"{name}: {given_as!r} is refused: {why} (from {flag})"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("workers = true", "workers: True is refused: it must be a whole number from 1 to 64"),
        ('workers = "2"', "workers: '2' is refused: it must be a whole number from 1 to 64"),
        ("keystone_insecure = 1", "keystone_insecure: 1 is refused: it must be true or false"),
        ("tokens_file = 3", "tokens_file: 3 is refused: it must be a string"),
        (
            'cors_allow_headers = "x"',
            "cors_allow_headers: 'x' is refused: it must be a list of strings",
        ),
        ("cors_allow_headers = [1]", "cors_allow_headers: [1] is refused: it must be a list of strings"),
    ],
)
def test_refused_types_in_the_file(tmp_path: Path, line: str, why: str) -> None:
    config = toml(tmp_path, line)
    assert refusal(config) == f"{why} (from {config})"


def test_a_refused_secret_is_not_repeated(tmp_path: Path) -> None:
    config = toml(tmp_path, "keystone_password = 12345")
    assert "12345" not in refusal(config)


# -- refusals: what does not go together --------------------------------------------------------


def test_noauth_on_an_address_that_others_reach() -> None:
    message = refusal(flags={"listen": "0.0.0.0:8778"})
    assert message == (
        "listen: 0.0.0.0:8778 can be reached by others, and auth=noauth accepts every token. Choose "
        "auth=tokens or auth=keystone, listen on 127.0.0.1, or set allow_remote_noauth (from --listen)"
    )


@pytest.mark.parametrize("listen", ["127.0.0.2:1", "localhost:8778", "[::1]:8778"])
def test_noauth_on_the_machine_itself(listen: str) -> None:
    refuse_conflicts(resolve(flags={"listen": listen}))


def test_noauth_on_any_address_if_that_is_meant() -> None:
    refuse_conflicts(resolve(flags={"listen": "0.0.0.0:8778", "allow_remote_noauth": "true"}))


def test_tokens_need_their_file() -> None:
    assert refusal(flags={"auth": "tokens"}) == "tokens_file: required with auth=tokens"


def test_keystone_needs_its_settings() -> None:
    names = "keystone_auth_url, keystone_username, keystone_password, keystone_project_name"
    assert refusal(flags={"auth": "keystone"}) == f"{names}: required with auth=keystone"


def test_the_filters_and_weighers_of_the_default_settings_exist() -> None:
    settings = Settings()
    options = plugins.scheduler_options(settings.scheduler_filters, settings.scheduler_weighers)
    assert tuple(map(plugins.name_of, options.filters)) == settings.scheduler_filters
    assert [f"{plugins.name_of(weigher)}={by}" for weigher, by in options.weighers] == list(
        settings.scheduler_weighers
    )


# -- secrets --------------------------------------------------------------------------------------------

SECRETS = (
    'keystone_password = "hidden"',
    'database = "postgresql://berth:hidden@db/berth"',
    'database = "mysql://berth:hidden@h1:3306,h2:3306/berth"',
    'cells = ["cell1=sqlite:///cell1.db", "cell2=postgresql://berth:hidden@db/cell2"]',
)
NO_SECRETS = (
    "workers = 2",
    'database = "postgresql://berth@db:5432/berth"',
    'database = "mysql://h1:3306,h2:3306/berth"',
    'cells = ["cell1=sqlite:///cell1.db"]',
)


@pytest.mark.parametrize("line", SECRETS)
def test_a_file_with_a_secret_must_be_readable_by_its_owner_only(tmp_path: Path, line: str) -> None:
    config = toml(tmp_path, line)
    for mode in (0o644, 0o640, 0o602):
        Path(config).chmod(mode)
        with pytest.raises(SettingsError, match=f"run: chmod 600 {config}") as caught:
            resolve(config)
        assert line.split()[0] in str(caught.value)
        assert "hidden" not in str(caught.value)
    for mode in (0o600, 0o400):
        Path(config).chmod(mode)
        resolve(config)


@pytest.mark.parametrize("line", NO_SECRETS)
def test_a_file_without_a_secret_may_be_readable_by_all(tmp_path: Path, line: str) -> None:
    config = toml(tmp_path, line)
    Path(config).chmod(0o644)
    resolve(config)
