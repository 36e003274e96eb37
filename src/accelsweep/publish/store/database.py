"""A database as the store: asked once before MLflow asks it, and used by one publisher while MLflow makes tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_LOCK = int.from_bytes(b"accelswp", "big")
"""The number of our advisory lock. PostgreSQL's are any 64 bits that the users of a database agree on."""


@contextmanager
def alone_in_database(uri: str) -> Iterator[None]:
    """Keep other publishers out of a PostgreSQL database meanwhile; of another database, only see that it answers.

    MLflow's making of its tables is guarded against processes of the same machine only, and not to its end. Where the
    database does not answer, MLflow asks ten times, for 100 seconds. So this asks first. Raises ConnectionError where
    the database does not answer, or is changed by another publisher all the same.
    """
    import sqlalchemy

    try:
        with sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool).connect() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sqlalchemy.select(sqlalchemy.func.pg_advisory_lock(_LOCK)))
            yield  # the lock ends with the connection
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise ConnectionError(str(getattr(error, "orig", None) or error).splitlines()[0]) from error


def ask_file(uri: str) -> None:
    """See that the file of a SQLite store can be read: MLflow would ask ten times, for 100 seconds.

    Raises SQLAlchemyError where it cannot. One that another process has locked is left to MLflow, which waits.
    """
    import sqlalchemy

    try:
        with sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool).connect() as connection:
            connection.exec_driver_sql("select count(*) from sqlite_master")
    except sqlalchemy.exc.OperationalError as error:
        if "locked" not in str(error.orig):
            raise
