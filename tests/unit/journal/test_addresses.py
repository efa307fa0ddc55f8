"""Database URLs."""

from pathlib import Path

import pytest

from berth.cli import main
from berth.journal.database import AddressError, ServerAddress, SqliteAddress, parse_address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("sqlite:///berth.db", SqliteAddress(Path("berth.db"))),
        ("sqlite:////var/lib/berth/a?b.db", SqliteAddress(Path("/var/lib/berth/a?b.db"))),
        ("postgresql://h/berth", ServerAddress("postgresql", (("h", 5432),), "berth")),
        ("postgres://u@h:1/berth", ServerAddress("postgresql", (("h", 1),), "berth", "u")),
        (
            "mariadb://u:p%40ss@a,b:3307,[::1]:3308/ledger",
            ServerAddress("mysql", (("a", 3306), ("b", 3307), ("::1", 3308)), "ledger", "u", "p@ss"),
        ),
        ("mysql://[::1]/b", ServerAddress("mysql", (("::1", 3306),), "b")),
    ],
)
def test_an_address_is_read(url: str, address: object) -> None:
    assert parse_address(url) == address


def test_a_password_is_not_shown() -> None:
    assert str(parse_address("mysql://u:secret@a,b/ledger")) == "mysql://u@a:3306,b:3306/ledger"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("berth.db", "a URL is expected"),
        ("oracle://h/berth", "oracle is not supported; use sqlite, postgresql, mysql or mariadb"),
        ("sqlite://", "a database in memory loses all data"),
        ("sqlite:///", "a database in memory loses all data"),
        ("sqlite:///:memory:", "a database in memory loses all data"),
        ("sqlite://berth.db", "use three slashes before a relative path"),
        ("mysql://h", "it must end with the name of a database"),
        ("mysql://h/berth?charset=x", "without options"),
        ("mysql://h:0/berth", "'0' is not a port"),
        ("mysql://h:x/berth", "'x' is not a port"),
        ("mysql://a,,b/berth", "the host name is missing"),
    ],
)
def test_a_bad_address_is_refused(url: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AddressError, match=why):
        parse_address(url)
    assert main(["settings", "--database", url]) == 2
    said = capsys.readouterr().err
    assert said.startswith("berth: database: ")
    assert why in said
    assert said.endswith("(from --database)\n")


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:secret@h:0/berth",
        "mysql://u:secret@secret:secret@h:0/berth",
        "mysql://u:secret/secret@h/berth",
        "mysql://u:secret/secret@h",
        "mysql://:secret@h:0/berth",
        "mysql://h/berth?password=secret",
        "mysql://u:a@h/berth?password=secret&x=1",
        "oracle://u:cret@cret:secret@h/berth",
    ],
)
def test_a_refusal_shows_no_password(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--database", url]) == 2
    said = capsys.readouterr()
    assert "is refused" in said.err
    assert "cret" not in said.out + said.err


def test_the_refusal_of_a_slash_in_a_password_says_how_to_write_it() -> None:
    with pytest.raises(AddressError, match="%2F"):
        parse_address("mysql://u:a/b@h")


def test_a_password_with_an_at_sign_is_hidden_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BERTH_KEYSTONE_AUTH_URL", "https://u:p@ssw0rd@keystone/v3")
    assert main(["settings", "--database", "postgresql://u:p@ssw0rd@h/db"]) == 0
    said = capsys.readouterr().out
    assert "ssw0rd" not in said
    assert "postgresql://u:***@h/db" in said
    assert "https://u:***@keystone/v3" in said
    config = tmp_path / "berth.toml"
    config.write_text('database = ["postgresql://u:p@ssw0rd@h/db"]\n')
    config.chmod(0o600)
    assert main(["settings", "--config", str(config)]) == 2
    assert "ssw0rd" not in capsys.readouterr().err
