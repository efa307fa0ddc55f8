"""Who can log in, and lists of what there is: projects, users, roles, domains, regions, services, endpoints;
and the catalog.

There is one issuer of tokens for each authenticator that has no Keystone: it knows the users.

Administrators see all of it, others themselves and their project. A query narrows a list by fields that its
items have; any other name is refused. Services are below the address at which the caller reached this one.
"""

import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

from berth.api.kernel.auth.caller import Authenticator, Caller, NoAuth, roles_of
from berth.api.kernel.auth.tokens import Grant, TokenEntry, Tokens
from berth.api.kernel.call import Call, Handler, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import read_query
from berth.api.kernel.problem import Problem, forbidden
from berth.api.kernel.router import Route

REGION: Final = "RegionOne"
DOMAIN_ID: Final = "default"
DOMAIN_NAME: Final = "Default"
_INTERFACES: Final = ("public", "internal", "admin")
_PATHS: Final = {
    "compute": "/compute/v2.1",
    "identity": "/identity/v3",
    "image": "/image",
    "placement": "",
}
_OF_OTHERS: Final = ("projects", "users")
"""What there is more of than a caller sees. Who asks for one by a name that is not its own gets 403, as from
Keystone, whether there is such a one or not: clients then take the name for an id."""
_NAMESPACE: Final = uuid.UUID("2c0cb6f0-6c2d-4c32-8b0e-63bd0f2f8d4e")

# -- issuers of tokens --------------------------------------------------------------------------


class Login(NamedTuple):
    """A caller that has been recognised. ``grant`` is what its token said, if it was recognised by one that a
    login had issued; ``issue`` makes a token of a grant."""

    caller: Caller
    grant: Grant | None
    issue: Callable[[Grant], str]


class Issuer(Protocol):
    """``project`` is the one to log in to; None for the user's own. The answer is None if the login is not
    known, or not in that project."""

    def log_in_by_password(self, user: str, password: str, project: str | None) -> Login | None: ...

    def log_in_by_token(self, token: str, project: str | None) -> Login | None: ...

    def knows(self, user: str) -> bool:
        """Whether there is such a user."""

    def list_callers(self, asking: Caller) -> Iterable[Caller]:
        """All callers that are known."""


def choose_issuer(authenticator: Authenticator) -> Issuer | None:
    """None where a Keystone issues tokens."""
    match authenticator:
        case Tokens():
            return TokensIssuer(authenticator)
        case NoAuth():
            return NoAuthIssuer()
        case _:
            return None


class TokensIssuer:
    """A user's password is its token in the tokens file; what is issued is signed, and expires."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def log_in_by_password(self, user: str, password: str, project: str | None) -> Login | None:
        entry = self._tokens.known_by_password(user, password)
        return None if entry is None else _log_in(entry, None, project)

    def log_in_by_token(self, token: str, project: str | None) -> Login | None:
        found = self._tokens.known_by_token(token)
        return None if found is None else _log_in(*found, project)

    def knows(self, user: str) -> bool:
        return any(caller.user_id == user for caller in self._tokens.callers())

    def list_callers(self, asking: Caller) -> Iterable[Caller]:
        return self._tokens.callers()


def _log_in(entry: TokenEntry, grant: Grant | None, project: str | None) -> Login | None:
    if project not in (None, entry.caller.project_id):
        return None
    return Login(entry.caller, grant, entry.seal.issue)


class NoAuthIssuer:
    """Any password will do, and the token is ``USER:PROJECT``, as ``noauth`` reads it."""

    def log_in_by_password(self, user: str, password: str, project: str | None) -> Login | None:
        return _make_login(user, project or user)

    def log_in_by_token(self, token: str, project: str | None) -> Login | None:
        user, _, own = token.partition(":")
        return _make_login(user, project or own or user)

    def knows(self, user: str) -> bool:
        return False

    def list_callers(self, asking: Caller) -> Iterable[Caller]:
        return (asking,)


def _make_login(user: str, project: str) -> Login | None:
    token = f"{user}:{project}"
    # The token goes into a header, and is split at the colon when it comes back.
    if not (token.isascii() and token.isprintable() and " " not in token) or ":" in user or not user:
        return None
    return Login(Caller(user, project, roles_of(user)), None, lambda grant: token)


# -- the catalog --------------------------------------------------------------------------------


def make_catalog(origin: str, image_endpoint: str | None) -> list[dict[str, Any]]:
    """The services and their endpoints, as a token has them. ``image_endpoint``: that of a Glance whose
    images are used."""
    return [
        {
            "id": service["id"],
            "type": service["type"],
            "name": service["name"],
            "endpoints": [
                {key: endpoint[key] for key in ("id", "interface", "region", "region_id", "url")}
                for endpoint in list_endpoints(origin, image_endpoint)
                if endpoint["service_id"] == service["id"]
            ],
        }
        for service in list_services()
    ]


def list_services() -> list[dict[str, Any]]:
    return [{"id": _make_id(type), "type": type, "name": type, "enabled": True} for type in _PATHS]


def list_endpoints(origin: str, image_endpoint: str | None) -> list[dict[str, Any]]:
    elsewhere = {"image": image_endpoint}
    return [
        {
            "id": _make_id(f"{type} {interface}"),
            "service_id": _make_id(type),
            "interface": interface,
            "region": REGION,
            "region_id": REGION,
            "url": elsewhere.get(type) or origin + path,
            "enabled": True,
        }
        for type, path in _PATHS.items()
        for interface in _INTERFACES
    ]


def _make_id(name: str) -> str:
    return uuid.uuid5(_NAMESPACE, name).hex


# -- lists --------------------------------------------------------------------------------------


Items = Callable[[Call], list[dict[str, Any]]]


class Directory:
    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        self.routes: Final = (
            *_make_routes("projects", "project", self._list_projects),
            *_make_routes("users", "user", self._list_users),
            *_make_routes("roles", "role", self._list_roles),
            *_make_routes("domains", "domain", lambda call: _DOMAINS),
            *_make_routes("regions", "region", lambda call: _REGIONS),
            *_make_routes("services", "service", lambda call: list_services()),
            *_make_routes("endpoints", "endpoint", _list_endpoints),
            Route(
                "GET",
                "/auth/projects",
                _make_list("projects", self._list_own_projects),
                policy="identity:get_auth_projects",
            ),
            Route(
                "GET",
                "/auth/domains",
                _make_list("domains", lambda call: _DOMAINS),
                policy="identity:get_auth_domains",
            ),
            Route("GET", "/auth/catalog", show_catalog, policy="identity:get_auth_catalog"),
            Route(
                "GET",
                "/users/{id}/projects",
                _make_list("projects", self._list_projects_of_user),
                policy="identity:list_user_projects",
            ),
        )

    def _list_callers(self, call: Call) -> Iterable[Caller]:
        everybody = self._issuer.list_callers(call.caller)
        return (
            everybody if call.is_admin else (one for one in everybody if one.user_id == call.caller.user_id)
        )

    def _list_projects(self, call: Call) -> list[dict[str, Any]]:
        return _show_projects(caller.project_id or "" for caller in self._list_callers(call))

    def _list_own_projects(self, call: Call) -> list[dict[str, Any]]:
        return _show_projects([call.project])

    def _list_projects_of_user(self, call: Call) -> list[dict[str, Any]]:
        callers = [caller for caller in self._list_callers(call) if caller.user_id == call.params[0]]
        return _show_projects(caller.project_id or "" for caller in callers)

    def _list_users(self, call: Call) -> list[dict[str, Any]]:
        names = dict.fromkeys(caller.user_id or "" for caller in self._list_callers(call))
        return [
            {"id": name, "name": name, "domain_id": DOMAIN_ID, "enabled": True, "password_expires_at": None}
            for name in names
        ]

    def _list_roles(self, call: Call) -> list[dict[str, Any]]:
        names = dict.fromkeys(role for caller in self._list_callers(call) for role in caller.roles)
        return [{"id": name, "name": name, "domain_id": None, "description": None} for name in names]


_DOMAINS: Final[list[dict[str, Any]]] = [
    {"id": DOMAIN_ID, "name": DOMAIN_NAME, "enabled": True, "description": "The only domain."}
]
_REGIONS: Final[list[dict[str, Any]]] = [{"id": REGION, "description": "", "parent_region_id": None}]


def _show_projects(names: Iterable[str]) -> list[dict[str, Any]]:
    return [
        {
            "id": name,
            "name": name,
            "domain_id": DOMAIN_ID,
            "parent_id": DOMAIN_ID,
            "enabled": True,
            "is_domain": False,
            "description": "",
            "tags": [],
            "options": {},
        }
        for name in dict.fromkeys(names)
    ]


def _make_routes(plural: str, singular: str, items: Items) -> tuple[Route[Handler], ...]:
    return (
        Route("GET", f"/{plural}", _make_list(plural, items), policy=f"identity:list_{plural}"),
        Route(
            "GET", f"/{plural}/{{id}}", _make_show(plural, singular, items), policy=f"identity:get_{singular}"
        ),
    )


def _make_list(plural: str, items: Items) -> Handler:
    async def list_items(call: Call) -> Response:
        listed = items(call)
        # An empty list has no items that tell which names are known, and nothing to filter.
        query = read_query(call, plural, dict.fromkeys(listed[0], 0)) if listed else {}
        found = [item for item in listed if _is_asked_for(item, query)]
        if not found and "name" in query and plural in _OF_OTHERS and not call.is_admin:
            raise forbidden(f"identity:list_{plural}")
        base = f"{call.origin}/identity/v3"
        links = {"self": f"{base}/{plural}", "next": None, "previous": None}
        return json({plural: [_add_link(base, plural, item) for item in found], "links": links})

    return list_items


def _make_show(plural: str, singular: str, items: Items) -> Handler:
    async def show_item(call: Call) -> Response:
        base = f"{call.origin}/identity/v3"
        for item in items(call):
            if item["id"] == call.params[0]:
                return json({singular: _add_link(base, plural, item)})
        raise Problem(404, f"Could not find {singular}: {call.params[0]}.")

    return show_item


def _add_link(base: str, plural: str, item: dict[str, Any]) -> dict[str, Any]:
    return item | {"links": {"self": f"{base}/{plural}/{item['id']}"}}


def _is_asked_for(item: dict[str, Any], query: dict[str, str]) -> bool:
    return all(str(item[key]).lower() == value.lower() for key, value in query.items())


def _list_endpoints(call: Call) -> list[dict[str, Any]]:
    return list_endpoints(call.origin, call.services.settings.image_endpoint)


async def show_catalog(call: Call) -> Response:
    origin = call.origin
    catalog = make_catalog(origin, call.services.settings.image_endpoint)
    return json({"catalog": catalog, "links": {"self": f"{origin}/identity/v3/auth/catalog"}})
