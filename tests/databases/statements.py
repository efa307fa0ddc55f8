"""Single statements to a database server, each on a connection of its own and committed when it returns."""

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

DRIVERS: Final = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
"""Which driver is used for a URL that names none."""

OPTIONS: Final = {
    "postgresql": {"connect_timeout": 5},
    "mysql": {"connect_timeout": 5, "charset": "utf8mb4"},
}


def engine(url: str) -> sa.Engine:
    """An engine without a pool, so that no connection outlives its use."""
    parsed = sa.make_url(url)
    scheme = parsed.drivername
    return sa.create_engine(
        parsed.set(drivername=DRIVERS[scheme]), connect_args=OPTIONS[scheme], poolclass=sa.NullPool
    )


def execute(url: str, statement: str, *, prelude: Sequence[str] = ()) -> list[tuple[Any, ...]]:
    """Run the prelude, then the statement, on one connection. The rows, if there are any."""
    with engine(url).connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for first in prelude:
            connection.execute(sa.text(first))
        result = connection.execute(sa.text(statement))
        return [tuple(row) for row in result] if result.returns_rows else []


def answers(url: str) -> bool:
    """Whether a connection can be made and a query is answered."""
    try:
        return execute(url, "SELECT 1") == [(1,)]
    except sa.exc.DBAPIError:
        return False
