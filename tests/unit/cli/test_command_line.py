"""The command line: help that reads well, settings listed, and errors that are one clear message."""

import json
from pathlib import Path

import pytest

from berth import __version__
from berth.cli import main
from berth.runtime.settings import TABLE

pytestmark = pytest.mark.fast


@pytest.fixture(autouse=True)
def _no_settings_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in TABLE:
        monkeypatch.delenv(setting.variable, raising=False)
    for variable in ("BERTH_CONFIG", "BERTH_TEST_SERVER"):
        monkeypatch.delenv(variable, raising=False)


def ends(*words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert isinstance(caught.value.code, int)
    return caught.value.code


def listed(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in text.splitlines()[1:]}


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends("--version") == 0
    assert capsys.readouterr().out == f"berth {__version__}\n"


def test_help_names_the_commands_and_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends("--help") == 0
    text = capsys.readouterr().out
    for words in ("look at a region:", "  settings ", "examples:", "berth who host-0001"):
        assert words in text


def test_help_of_serve_has_every_setting_but_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends("serve", "--help") == 0
    text = capsys.readouterr().out
    for setting in TABLE:
        assert (f"  {setting.flag}" in text) is not setting.about.secret


@pytest.mark.parametrize("words", [["fly"], ["serve", "--worker", "2"]])
def test_command_lines_that_are_not_understood(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert ends(*words) == 2
    assert "berth" in capsys.readouterr().err


def test_settings_are_listed_with_their_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "berth.toml"
    config.write_text('log_level = "error"\n')
    monkeypatch.setenv("BERTH_WORKERS", "3")
    monkeypatch.setenv("BERTH_KEYSTONE_PASSWORD", "do not tell")
    assert main(["settings", "--config", str(config), "--keystone-insecure"]) == 0
    text = capsys.readouterr().out
    rows = listed(text)
    assert set(rows) == {setting.name for setting in TABLE}
    assert rows["log_level"] == ["error", str(config)]
    assert rows["workers"] == ["3", "BERTH_WORKERS"]
    assert rows["keystone_insecure"] == ["true", "--keystone-insecure"]
    assert rows["listen"] == ["127.0.0.1:8778", "default"]
    assert rows["keystone_password"] == ["(hidden)", "BERTH_KEYSTONE_PASSWORD"]
    assert "do not tell" not in text


def test_settings_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--json", "--workers", "2"]) == 0
    listed = json.loads(capsys.readouterr().out)["settings"]
    assert [one["name"] for one in listed] == [setting.name for setting in TABLE]
    assert {"name": "workers", "value": "2", "origin": "--workers"} in listed


@pytest.mark.parametrize("command", ["serve", "settings"])
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--workers", "0"],
            "workers: 0 is refused: it must be a whole number from 1 to 64 (from --workers)",
        ),
        (["--auth", "tokens"], "tokens_file: required with auth=tokens"),
    ],
)
def test_bad_settings_are_refused_by_name(
    command: str, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, *flags]) == 2
    assert capsys.readouterr().err == f"berth: {message}\n"


@pytest.mark.parametrize(
    "variable", ["BERTH_TOKEN", "BERTH_URL", "BERTH_AGENT_TOKEN", "BERTH_PLACEMENT_TOKEN"]
)
def test_variables_of_other_commands_do_not_bother_a_server(
    variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, "secret")
    assert main(["settings"]) == 0
    assert "secret" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("BERTH_PORT", "tcp://10.96.0.7:8778"),
        ("BERTH_SERVICE_HOST", "10.96.0.7"),
        ("BERTH_SERVICE_PORT", "8778"),
        ("BERTH_SERVICE_PORT_HTTP", "8778"),
        ("BERTH_PORT_8778_TCP", "tcp://10.96.0.7:8778"),
        ("BERTH_PORT_8778_TCP_ADDR", "10.96.0.7"),
        ("BERTH_PORT_8778_TCP_PORT", "8778"),
        ("BERTH_PORT_8778_TCP_PROTO", "tcp"),
        ("BERTH_CELL1_SERVICE_HOST", "10.96.0.8"),
        ("BERTH_CELL1_PORT", "tcp://10.96.0.8:8780"),
    ],
)
def test_variables_that_kubernetes_makes_are_no_settings(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, value)
    assert main(["settings"]) == 0
    assert capsys.readouterr().err == ""


def test_a_port_by_hand_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kubernetes writes an address there. A number is somebody who wants to set the port."""
    monkeypatch.setenv("BERTH_PORT", "8779")
    assert main(["settings"]) == 2
    assert "unknown variable BERTH_PORT" in capsys.readouterr().err


def test_a_variable_that_nobody_knows_is_refused_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BERTH_TOKENS", "x")
    assert main(["settings"]) == 2
    assert "unknown variable BERTH_TOKENS; did you mean" in capsys.readouterr().err
