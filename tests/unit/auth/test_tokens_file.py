"""The file of tokens: who it lets in, what it refuses, and that changes are followed."""

import hashlib
import logging
from pathlib import Path

import pytest

from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.auth.tokens import Tokens, TokensFileError
from tests.clocks import FakeClock

pytestmark = pytest.mark.fast

NOVA = "nova-token-0123456789"
NEUTRON = "neutron-token-0123456789"
NOT_A_HEADER = (
    "token must be printable ASCII without spaces at its ends: "
    "others do not pass through an HTTP header as they are"
)


def entry(token: str, user: str = "nova", rest: str = 'roles = ["service"]') -> str:
    return f'[[token]]\ntoken = "{token}"\nuser = "{user}"\nproject = "service"\n{rest}\n'


def write(directory: Path, text: str, mode: int = 0o600) -> str:
    path = directory / "tokens.toml"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


async def identify(tokens: Tokens, token: str) -> Caller | None:
    return await tokens.identify({"x-auth-token": token})


async def test_a_token_is_known_by_itself_or_by_its_digest(tmp_path: Path) -> None:
    digest = "sha256:" + hashlib.sha256(NEUTRON.encode()).hexdigest()
    tokens = Tokens(write(tmp_path, entry(NOVA) + entry(digest, "neutron", "")), FakeClock())
    assert await identify(tokens, NOVA) == Caller("nova", "service", ("service",))
    assert await identify(tokens, NEUTRON) == Caller("neutron", "service", ())
    # Knowing the digest is not knowing the token.
    assert await identify(tokens, digest) is None
    assert await identify(tokens, NOVA + "x") is None
    assert await tokens.identify({}) is None


async def test_a_digest_is_of_the_bytes_that_are_sent(tmp_path: Path) -> None:
    sent = "növa-token-0123456789".encode()
    digest = "sha256:" + hashlib.sha256(sent).hexdigest()
    tokens = Tokens(write(tmp_path, entry(digest)), FakeClock())
    assert await identify(tokens, sent.decode("latin-1")) is not None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it has no [[token]] entry"),
        ("token = 3", "it has no [[token]] entry"),
        ("tokens = []", "unknown key tokens; only [[token]] entries are expected"),
        ("= 3", "invalid TOML: Invalid statement (at line 1, column 1)"),
        (entry(""), "token 1: token must be a string that is not empty"),
        (entry("short"), "token 1: token has 5 characters; it must have at least 16"),
        (entry("sha256:abcd"), "token 1: token must have 64 hex digits after sha256:"),
        (entry("sha256:" + "zz" * 32), "token 1: token must have 64 hex digits after sha256:"),
        *((entry(token), f"token 1: {NOT_A_HEADER}") for token in ("növa-token-0123456789", NOVA + " ")),
        (entry(NOVA) + entry(NOVA), "token 2: token is the same as that of token 1"),
        (entry(NOVA) + entry(NEUTRON, ""), "token 2: user must be a string that is not empty"),
        (entry(NOVA, rest="roles = 'admin'"), "token 1: roles must be a list of strings"),
        (
            entry(NOVA, rest="role = 'x'"),
            "token 1: unknown field role; known are project, roles, token, user",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_at_the_start(tmp_path: Path, text: str, why: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(TokensFileError) as caught:
        Tokens(path, FakeClock())
    assert str(caught.value) == f"{path}: {why}"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokensFileError, match="cannot read the tokens: No such file or directory"):
        Tokens(str(tmp_path / "none"), FakeClock())


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o640, 0o620, 0o602])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path, entry(NOVA), mode)
    with pytest.raises(TokensFileError, match=f"run: chmod 600 {path}"):
        Tokens(path, FakeClock())


async def test_changes_are_followed_once_a_second(tmp_path: Path) -> None:
    clock = FakeClock()
    tokens = Tokens(write(tmp_path, entry(NOVA)), clock)
    write(tmp_path, entry(NEUTRON, "neutron"))
    clock.advance(0.9)
    assert await identify(tokens, NOVA) is not None
    clock.advance(0.1)
    assert await identify(tokens, NOVA) is None
    assert await identify(tokens, NEUTRON) is not None


async def test_a_broken_change_is_reported_once_and_not_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    tokens = Tokens(write(tmp_path, entry(NOVA)), clock)
    write(tmp_path, entry("short"))
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            clock.advance(1)
            assert await identify(tokens, NOVA) is not None
    assert len(caplog.records) == 1
    assert "token 1: token has 5 characters" in caplog.text
