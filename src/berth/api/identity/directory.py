"""Lists of what there is: projects, users, roles, domains, regions, services, endpoints.

Admins see all of it, others themselves and their project. A query narrows a list by fields that its items
have, and is refused with any other name.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from berth.api.identity import catalog
from berth.api.identity.catalog import DOMAIN_ID, DOMAIN_NAME
from berth.api.identity.issuers import Issuer
from berth.api.kernel.auth.caller import Caller
from berth.api.kernel.call import Call, Handler, json
from berth.api.kernel.http import Response
from berth.api.kernel.paging import query_of
from berth.api.kernel.problem import Problem
from berth.api.kernel.router import Route

Items = Callable[[Call], list[dict[str, Any]]]


class Directory:
    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        self.routes: Final = (
            *_collection("projects", "project", self._projects),
            *_collection("users", "user", self._users),
            *_collection("roles", "role", self._roles),
            *_collection("domains", "domain", lambda call: _DOMAINS),
            *_collection("regions", "region", lambda call: _REGIONS),
            *_collection("services", "service", lambda call: catalog.services()),
            *_collection("endpoints", "endpoint", lambda call: catalog.endpoints(call.origin)),
            Route(
                "GET",
                "/auth/projects",
                _list("projects", self._own_projects),
                policy="identity:get_auth_projects",
            ),
            Route(
                "GET",
                "/auth/domains",
                _list("domains", lambda call: _DOMAINS),
                policy="identity:get_auth_domains",
            ),
            Route("GET", "/auth/catalog", _catalog, policy="identity:get_auth_catalog"),
            Route(
                "GET",
                "/users/{id}/projects",
                _list("projects", self._projects_of),
                policy="identity:list_user_projects",
            ),
        )

    def _callers(self, call: Call) -> Iterable[Caller]:
        everybody = self._issuer.callers(call.caller)
        return (
            everybody if call.is_admin else (one for one in everybody if one.user_id == call.caller.user_id)
        )

    def _projects(self, call: Call) -> list[dict[str, Any]]:
        return _project_items(caller.project_id or "" for caller in self._callers(call))

    def _own_projects(self, call: Call) -> list[dict[str, Any]]:
        return _project_items([call.project])

    def _projects_of(self, call: Call) -> list[dict[str, Any]]:
        callers = [caller for caller in self._callers(call) if caller.user_id == call.params[0]]
        return _project_items(caller.project_id or "" for caller in callers)

    def _users(self, call: Call) -> list[dict[str, Any]]:
        names = dict.fromkeys(caller.user_id or "" for caller in self._callers(call))
        return [
            {"id": name, "name": name, "domain_id": DOMAIN_ID, "enabled": True, "password_expires_at": None}
            for name in names
        ]

    def _roles(self, call: Call) -> list[dict[str, Any]]:
        names = dict.fromkeys(role for caller in self._callers(call) for role in caller.roles)
        return [{"id": name, "name": name, "domain_id": None, "description": None} for name in names]


_DOMAINS: Final[list[dict[str, Any]]] = [
    {"id": DOMAIN_ID, "name": DOMAIN_NAME, "enabled": True, "description": "The one that there is."}
]
_REGIONS: Final[list[dict[str, Any]]] = [{"id": catalog.REGION, "description": "", "parent_region_id": None}]


def _project_items(names: Iterable[str]) -> list[dict[str, Any]]:
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


def _collection(plural: str, singular: str, items: Items) -> tuple[Route[Handler], ...]:
    return (
        Route("GET", f"/{plural}", _list(plural, items), policy=f"identity:list_{plural}"),
        Route("GET", f"/{plural}/{{id}}", _one(plural, singular, items), policy=f"identity:get_{singular}"),
    )


def _list(plural: str, items: Items) -> Handler:
    async def index(call: Call) -> Response:
        listed = items(call)
        # Nothing is left out of an empty list, whatever is asked.
        query = query_of(call, plural, dict.fromkeys(listed[0], 0)) if listed else {}
        found = [item for item in listed if _is_asked_for(item, query)]
        base = f"{call.origin}/identity/v3"
        links = {"self": f"{base}/{plural}", "next": None, "previous": None}
        return json({plural: [_linked(base, plural, item) for item in found], "links": links})

    return index


def _one(plural: str, singular: str, items: Items) -> Handler:
    async def show(call: Call) -> Response:
        base = f"{call.origin}/identity/v3"
        for item in items(call):
            if item["id"] == call.params[0]:
                return json({singular: _linked(base, plural, item)})
        raise Problem(404, f"Could not find {singular}: {call.params[0]}.")

    return show


def _linked(base: str, plural: str, item: dict[str, Any]) -> dict[str, Any]:
    return item | {"links": {"self": f"{base}/{plural}/{item['id']}"}}


def _is_asked_for(item: dict[str, Any], query: dict[str, str]) -> bool:
    return all(str(item[key]).lower() == value.lower() for key, value in query.items())


async def _catalog(call: Call) -> Response:
    origin = call.origin
    return json({"catalog": catalog.catalog(origin), "links": {"self": f"{origin}/identity/v3/auth/catalog"}})
