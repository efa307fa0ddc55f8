"""The scheduler's options as the settings have them by default, with what a test changes."""

from collections.abc import Iterable
from typing import Final

from berth.runtime.settings import Settings
from berth.scheduler import plugins
from berth.scheduler.plugins import CANDIDATES_TRIED_MAX, HOSTS_TRIED_MAX, SchedulerOptions

_DEFAULTS: Final = Settings()
DEFAULT_FILTERS: Final = _DEFAULTS.scheduler_filters
DEFAULT_WEIGHERS: Final = _DEFAULTS.scheduler_weighers


def scheduler_options(
    filter_names: Iterable[str] = DEFAULT_FILTERS,
    weigher_settings: Iterable[str] = DEFAULT_WEIGHERS,
    subset_size: int = _DEFAULTS.scheduler_subset_size,
    hosts_tried_max: int = HOSTS_TRIED_MAX,
    candidates_tried_max: int = CANDIDATES_TRIED_MAX,
) -> SchedulerOptions:
    return plugins.scheduler_options(
        filter_names, weigher_settings, subset_size, hosts_tried_max, candidates_tried_max
    )
