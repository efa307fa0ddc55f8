"""The keeper: brings clusters on until each is what it shall be.

What is next for a cluster is said by ``clusters.reconciler``, from the records alone; here it is
asked for whenever the region has changed, and a while later for what must be tried again. A keeper remembers
nothing but whom it has found no place for just now: it can be stopped anywhere and start anew, and two of
them do no harm.
"""

import asyncio
import logging
from itertools import islice
from typing import Final

from berth.clusters.reconciler import is_due, propose_next
from berth.engine import Engine, Unavailable
from berth.engine.engine import Overloaded
from berth.model.batches import Origin
from berth.model.clusters import Cluster
from berth.model.commands import Enact
from berth.model.ids import Index
from berth.model.rejections import Rejection
from berth.runtime.clock import Clock
from berth.runtime.ids import Ids
from berth.runtime.settings import Settings
from berth.sagas.proposals import Context, read_quotas
from berth.scheduler.options import SchedulerOptions
from berth.view import View

_log = logging.getLogger(__name__)
_WAIT_S: Final = 1.0
_PAUSE_S: Final = 1.0
_AT_ONCE_MAX: Final = 100
"""How many clusters are brought on at the same time."""
_REST_NS: Final = 10_000_000_000
_STEPS_MAX: Final = 100
"""How many steps of one cluster are taken before the others have their turn."""


class ClusterReconciler:
    def __init__(
        self, engine: Engine, clock: Clock, ids: Ids, scheduler: SchedulerOptions, settings: Settings
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._ids = ids
        self._scheduler = scheduler
        self._settings = settings
        self._resting: dict[str, int] = {}

    async def run(self) -> None:
        """Until cancelled, or until the region's engine stops."""
        index = Index(-1)
        while not self._engine.stopping:
            try:
                index = await self._engine.wait_beyond(index, _WAIT_S)
                await self._keep()
            except (Unavailable, Overloaded) as away:
                _log.warning("the keeper waits: %s", away)
                await asyncio.sleep(_PAUSE_S)
            except Exception:
                _log.exception("the keeper stumbled")
                await asyncio.sleep(_PAUSE_S)

    async def _keep(self) -> None:
        """Bring every cluster on that can be."""
        now_s = self._clock.now_ns() // 1_000_000_000
        due = await self._engine.read(
            lambda view: [cluster for cluster in view.records.all(Cluster) if is_due(view, cluster, now_s)]
        )
        now_ns = self._clock.monotonic_ns()
        self._resting = {id: until_ns for id, until_ns in self._resting.items() if until_ns > now_ns}
        waiting = (cluster for cluster in due if cluster.id not in self._resting)
        while some := list(islice(waiting, _AT_ONCE_MAX)):
            # One that cannot be brought on is no reason to leave the others where they are.
            outcomes = await asyncio.gather(*map(self._bring_on, some), return_exceptions=True)
            for cluster, outcome in zip(some, outcomes, strict=True):
                if isinstance(outcome, (Unavailable, Overloaded)):
                    raise outcome
                if isinstance(outcome, BaseException):
                    _log.error("cluster %s cannot be brought on", cluster.id, exc_info=outcome)
                    self._rest(cluster)

    async def _bring_on(self, cluster: Cluster) -> None:
        context = Context(
            self._ids.request_id(),
            cluster.project,
            cluster.user,
            self._ids,
            self._scheduler,
            attempts_max=self._settings.build_attempts_max,
            quotas=read_quotas(self._settings),
        )

        def propose(view: View, now_s: int) -> Enact | Rejection | None:
            return propose_next(view, now_s, context, cluster.id)

        origin = Origin(context.request_id, cluster.user, cluster.project, "keeper")
        for number in range(_STEPS_MAX):
            outcome = await self._engine.submit(propose, origin, lambda view, changed: changed)
            if isinstance(outcome, Rejection):
                _log.error("cluster %s cannot be brought on: %s", cluster.id, outcome)
                self._rest(cluster)
                return
            if not outcome:
                if number == 0:
                    self._rest(cluster)
                return

    def _rest(self, cluster: Cluster) -> None:
        """Leave a cluster alone for a while: it was its turn, and there was nothing that could be done."""
        self._resting[cluster.id] = self._clock.monotonic_ns() + _REST_NS
