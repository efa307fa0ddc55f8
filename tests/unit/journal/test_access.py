"""Which errors of a database do not pass by themselves."""

import socket

import psycopg
import pymysql
import pytest

from berth.journal import AccessRefused, JournalFailure
from berth.journal.database import parse_address
from berth.journal.mysql import mysql_dialect
from berth.journal.postgresql import postgresql_dialect

pytestmark = pytest.mark.fast

POSTGRESQL = postgresql_dialect(parse_address("postgresql://h/db")).meaning  # type: ignore[arg-type]
MYSQL = mysql_dialect(parse_address("mysql://h/db")).meaning  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "is_refused"),
    [
        ('connection failed: FATAL:  password authentication failed for user "berth"', True),
        ('connection failed: FATAL:  role "berth" does not exist', True),
        ('connection failed: FATAL:  database "berth" does not exist', True),
        ('connection failed: FATAL:  no pg_hba.conf entry for host "10.0.0.1"', True),
        ("failed to resolve host 'nowhere': [Errno -2] Name or service not known", True),
        ("failed to resolve host 'nowhere': [Errno -3] Temporary failure in name resolution", False),
        ("connection failed: Connection refused", False),
        ("connection failed: FATAL:  the database system is starting up", False),
    ],
)
def test_postgresql(words: str, is_refused: bool) -> None:
    assert POSTGRESQL(psycopg.OperationalError(words)) is (AccessRefused if is_refused else JournalFailure)


def test_postgresql_refuses_rights_by_a_code() -> None:
    assert POSTGRESQL(psycopg.errors.InsufficientPrivilege("permission denied")) is AccessRefused


@pytest.mark.parametrize(
    ("number", "is_refused"), [(1044, True), (1045, True), (1049, True), (2003, False), (1047, False)]
)
def test_mysql(number: int, is_refused: bool) -> None:
    assert MYSQL(pymysql.OperationalError(number, "...")) is (AccessRefused if is_refused else JournalFailure)


@pytest.mark.parametrize(
    ("code", "is_refused"), [(socket.EAI_NONAME, True), (socket.EAI_AGAIN, False), (None, False)]
)
def test_mysql_has_no_such_host(code: int | None, is_refused: bool) -> None:
    error = pymysql.OperationalError(2003, "Can't connect")
    error.original_exception = OSError("refused") if code is None else socket.gaierror(code, "...")
    assert MYSQL(error) is (AccessRefused if is_refused else JournalFailure)
