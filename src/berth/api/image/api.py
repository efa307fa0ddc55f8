"""The image API: find the route, call the handler, and refuse in Glance's shape.

{"code": "404 Not Found", "title": "Not Found", "message": "..."}
"""

from http import HTTPStatus
from typing import Final

import msgspec

from berth.api.image import contents, images, schemas
from berth.api.kernel.api import RoutedApi
from berth.api.kernel.call import Services, json
from berth.api.kernel.http import JSON, Request, Response, origin_of
from berth.api.kernel.problem import Problem

_PREFIX: Final = "/image"
_V2: Final = f"{_PREFIX}/v2"
ROUTES: Final = (*images.ROUTES, *contents.ROUTES, *schemas.ROUTES)
_MINOR: Final = 9
"""The newest version of Glance's API whose calls are those of this one."""


class ImageApi(RoutedApi):
    PREFIX = _PREFIX

    def __init__(self, services: Services) -> None:
        super().__init__(services, ROUTES, below=_V2, versions_at=(_PREFIX, f"{_PREFIX}/versions", _V2))

    def refuse(self, problem: Problem, request: Request) -> Response:
        title = HTTPStatus(problem.status).phrase
        body = {"code": f"{problem.status} {title}", "title": title, "message": problem.text}
        return Response(problem.status, msgspec.json.encode(body), JSON, problem.headers)

    def show_versions(self, request: Request) -> Response:
        href = f"{origin_of(request)}{_V2}/"
        return json(
            {
                "versions": [
                    {
                        "id": f"v2.{minor}",
                        "status": "CURRENT" if minor == _MINOR else "SUPPORTED",
                        "links": [{"rel": "self", "href": href}],
                    }
                    for minor in range(_MINOR, -1, -1)
                ]
            }
        )
