"""What is sent to log in: who somebody is, how that is proved, and where they want to go.

What Keystone knows and this does not (trusts, application credentials, systems) is refused by name.
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from berth.api.kernel.problem import Problem

DOMAIN_ID: Final = "default"
DOMAIN_NAME: Final = "Default"

Text = Annotated[str, Meta(max_length=4096)]


class Domain(msgspec.Struct, frozen=True):
    id: Text | None = None
    name: Text | None = None


class User(msgspec.Struct, frozen=True):
    id: Text | None = None
    name: Text | None = None
    domain: Domain | None = None
    password: Text = ""


class Password(msgspec.Struct, frozen=True):
    user: User


class Token(msgspec.Struct, frozen=True):
    id: Text


class Identity(msgspec.Struct, frozen=True):
    methods: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=10)]
    password: Password | None = None
    token: Token | None = None


class Project(msgspec.Struct, frozen=True):
    id: Text | None = None
    name: Text | None = None
    domain: Domain | None = None


class Scope(msgspec.Struct, frozen=True):
    project: Project | None = None
    system: dict[str, Any] | None = None
    domain: Domain | None = None


class Auth(msgspec.Struct, frozen=True):
    identity: Identity
    scope: Scope | str | None = None


class LogIn(msgspec.Struct, frozen=True):
    auth: Auth


def is_ours(domain: Domain | None) -> bool:
    """Whether it is the one domain that there is, however it is spelled; or none is named."""
    if domain is None:
        return True
    named = domain.id if domain.id is not None else domain.name
    return named is None or named.lower() == DOMAIN_ID


def project_of(scope: Scope | str | None) -> str | None:
    """The project that is wanted; None for the user's own."""
    if scope is None or isinstance(scope, str):
        return None
    if scope.project is None:
        raise Problem(400, "The scope must be a project: there are no others here.")
    if not is_ours(scope.project.domain):
        raise Problem(401, f"There is no domain but {DOMAIN_NAME}.")
    project = scope.project.id or scope.project.name
    if not project:
        raise Problem(400, "scope.project must have an id or a name.")
    return project
