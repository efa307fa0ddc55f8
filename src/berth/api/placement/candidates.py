"""GET /allocation_candidates: where could this go?"""

import logging
from typing import Final

from berth.api.kernel.rejections import Attempt, placement_problem
from berth.api.placement.calls import Answer, PlacementCall
from berth.api.placement.candidate_json import CandidateRenderer
from berth.api.placement.candidate_query import parse_candidates_query
from berth.model.ids import ClassId
from berth.model.rejections import Rejection
from berth.model.scheduling import CandidatesRequest
from berth.search.candidates import SearchOptions, find_candidates
from berth.view import View

_log = logging.getLogger(__name__)

# Rendered summaries follow from the records of a view alone, so all callers share them.
_RENDERER: Final = CandidateRenderer()


async def list_candidates(call: PlacementCall) -> Answer:
    version = call.version
    request = parse_candidates_query(call.query, version, call.services.settings.request_groups_max)
    options = _options(call)

    def answer(view: View) -> tuple[Answer, int, int]:
        found = find_candidates(view, request, options)
        if isinstance(found, Rejection):
            return placement_problem(found, Attempt.LIST_CANDIDATES), 0, 0
        body = _RENDERER.render(view, found, _asked(view, request), version)
        return call.json(body, call.now_s), found.effort.gave_up, found.effort.steps

    answered, gave_up, steps = await call.read(answer)
    if gave_up:
        _log.warning(
            "candidates may be missing: %d roots were given up after %d steps in all",
            gave_up,
            steps,
            extra={"request_id": call.request.request_id},
        )
    return answered


def _options(call: PlacementCall) -> SearchOptions:
    settings = call.services.settings
    return SearchOptions(
        max_candidates=settings.max_allocation_candidates,
        breadth_first=settings.allocation_candidates_generation_strategy == "breadth-first",
        rng=call.services.ids.rng if settings.randomize_allocation_candidates else None,
    )


def _asked(view: View, request: CandidatesRequest) -> frozenset[ClassId]:
    ids = (view.classes.id_of(name) for group in request.groups for name, _ in group.resources)
    return frozenset(id for id in ids if id is not None)
