"""All sagas: every ``Saga`` that a module of this package defines. A new file is found by being there."""

import importlib
import pkgutil
from functools import cache

import berth.sagas
from berth.sagas.saga import Saga


@cache
def all_sagas() -> tuple[Saga, ...]:
    """In the order of their files."""
    found: dict[str, Saga] = {}
    for module in pkgutil.iter_modules(berth.sagas.__path__):
        values = vars(importlib.import_module(f"{berth.sagas.__name__}.{module.name}")).values()
        for saga in (value for value in values if isinstance(value, Saga)):
            assert found.setdefault(saga.name, saga) is saga, f"two sagas are called {saga.name}"
    return tuple(found.values())


def find_saga(key: str) -> Saga:
    """The saga that a journal calls this."""
    return _by_key()[key]


@cache
def _by_key() -> dict[str, Saga]:
    return {saga.key: saga for saga in all_sagas()}
