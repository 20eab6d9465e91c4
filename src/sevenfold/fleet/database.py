"""The PostgreSQL database of a fleet: connections, tenants, migrations, and what its errors mean.

The address comes from the environment or from a service file, and is never written anywhere. Each
transaction names its tenant and works as a role that no policy lets past.
"""

from __future__ import annotations

import ipaddress
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from sevenfold.core.errors import Failure, Mistake

if TYPE_CHECKING:
    import psycopg
    from psycopg import Connection

T = TypeVar("T")
VARIABLE: Final = "SEVENFOLD_FLEET_URL"
_TLS: Final = ("require", "verify-ca", "verify-full")
_ROLE: Final = "sevenfold_agent"
_REFUSALS: Final = {  # A connection that fails has no code, only words
    r"password|authentication failed|no pg_hba.conf entry|role .* does not exist": (
        "the database of the fleet does not accept this login"
    ),
    r"database .* does not exist": "there is no database of that name; make one with 'createdb'",
    r"definition of service|service file": "no service file defines the service in the fleet's address",
    r"certificate|SSL": "the TLS that sslmode asks for cannot be had from the fleet's database",
}
_PATIENCE: Final = "10"  # Seconds to connect


class FleetAway(Failure, kind="fleet_away"):
    """The database cannot be reached now; what was to be sent waits on this machine."""


class Tenant(msgspec.Struct, frozen=True):
    """A tenant of the database: its memories are apart from all others."""

    id: int
    name: str


def check_address(address: str) -> str:
    """The address with TLS required, unless it is on this machine; `Mistake` if that cannot be."""
    psycopg = load_psycopg()
    try:
        known = psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.ProgrammingError as error:
        raise Mistake("the address of the fleet is not one that PostgreSQL understands") from error
    hosts = str(known.get("hostaddr") or known.get("host") or "").split(",")
    known.setdefault("connect_timeout", _PATIENCE)
    if not all(map(_is_local, hosts)) and "service" not in known:
        mode = known.setdefault("sslmode", "verify-full")
        if mode not in _TLS:
            raise Mistake(f"sslmode={mode} would send memories in the clear; use sslmode=verify-full")
        if mode == "verify-full":
            known.setdefault("sslrootcert", "system")
    return str(psycopg.conninfo.make_conninfo(**known))


def _take_option(address: str) -> tuple[str, bool]:
    """The address without an option of our own, and True unless it says `prepare=off`, for a pooler."""
    found = re.search(r"(^|[?&\s])prepare=(\w+)(?:$|[&\s])", address)
    if found is None:
        return address, True
    if found[2] not in ("on", "off"):
        raise Mistake(f"prepare={found[2]} is not known in the address of the fleet; it is 'on' or 'off'")
    joined = found[1] if found.end() < len(address) else ""
    return address[: found.start()] + joined + address[found.end() :], found[2] == "on"


def _is_local(host: str) -> bool:
    if host in ("", "localhost") or host.startswith(("/", "@")):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _require_tls(connection: Connection[Any]) -> None:
    """Refuse a connection in the clear: a service file or a variable may name another machine."""
    place = connection.info
    if not connection.pgconn.ssl_in_use and not (_is_local(place.host) and _is_local(place.hostaddr)):
        connection.close()
        raise Mistake("the database is on another machine and has no TLS; use sslmode=verify-full")


def is_past(column: str, most: float) -> str:
    """SQL: the time has come, or is so many seconds away that the server's clock went back since."""
    return f"{column} not between clock_timestamp() and clock_timestamp() + interval '{most} s'"


def load_psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise Mistake("a fleet needs psycopg: pip install 'sevenfold[postgres]'") from error
    return psycopg


class FleetDatabase:
    """One connection to the database, made when it is needed and made again when it was lost."""

    def __init__(self, address: str, tenant: str = "") -> None:
        address, self._prepares = _take_option(address)
        self.address, self._name = check_address(address) if address else "", tenant
        self._connection: Connection[Any] | None = None
        self._tenant: Tenant | None = None
        self._turn = threading.RLock()

    @property
    def tenant(self) -> Tenant:
        """The tenant of this login. Raises `Mistake` if it has none, or several and none was named."""
        if self._tenant is None:
            self._tenant = self.run(self._find_tenant, tenant=None)
        return self._tenant

    def run(self, work: Callable[[Connection[Any]], T], *, tenant: Tenant | bool | None = True) -> T:
        """Run `work` in one transaction of the tenant; once more if the connection had been lost before."""
        chosen = self.tenant if tenant is True else tenant or None
        with self._turn:
            for again in (True, False):
                fresh = self._connection is None
                try:
                    with self._translate():
                        return self._run(work, chosen)
                except FleetAway:
                    self.close()
                    if fresh or not again:
                        raise
            raise AssertionError

    def _run(self, work: Callable[[Connection[Any]], T], tenant: Tenant | None) -> T:
        connection = self._connect()
        with connection.transaction():
            if tenant is not None:
                connection.execute(
                    "select set_config('sf.tenant', %s, true), set_config('role', %s, true)",
                    (str(tenant.id), _ROLE),
                )
            return work(connection)

    def close(self) -> None:
        with self._turn:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def migrate(self, tenant: str = "") -> int:
        """Bring the schema up to date, each step in one transaction; returns the number of its version.

        With `tenant` there is one of that name afterwards, and this login belongs to it.
        """
        steps = read_migrations()

        def step(connection: Connection[Any]) -> int:
            connection.execute("select pg_advisory_xact_lock(7707)")
            done = read_version(connection)
            if done >= len(steps):
                return done
            connection.execute(steps[done].encode())
            connection.execute("insert into sevenfold.migration (number) values (%s)", (done + 1,))
            return done + 1

        self.run(_check_server, tenant=None)
        version = -1
        while (new := self.run(step, tenant=None)) != version:
            version = new
        if tenant:
            self.run(lambda connection: _add_tenant(connection, tenant), tenant=None)
        return version

    def set_limit(self, amount: float | None) -> None:
        """Set what the workers of this tenant may spend in a day; for who owns the tables."""
        query = "update sevenfold.tenant set daily_limit = %s where id = %s"
        given = (amount, self.tenant.id)
        self.run(lambda connection: connection.execute(query, given), tenant=None)

    def _connect(self) -> Connection[Any]:
        if self._connection is None or self._connection.closed:
            if not self.address:
                raise FleetAway(f"{VARIABLE} is not set; what is new waits on this machine")
            psycopg = load_psycopg()
            connection: Connection[Any] = psycopg.connect(self.address, autocommit=True)
            if not self._prepares:
                connection.prepare_threshold = None
            _require_tls(connection)
            weakref.finalize(self, connection.close)
            self._connection = connection
        return self._connection

    def _find_tenant(self, connection: Connection[Any]) -> Tenant:
        version, known = read_version(connection), len(read_migrations())
        if version == 0:
            raise Mistake("there is no fleet in this database; make one with 'sevenfold fleet init'")
        if version != known:
            older = (
                "'sevenfold fleet migrate' brings it up to date" if version < known else "update this one"
            )
            raise Mistake(
                f"the database has version {version} of the schema, this Sevenfold {known}; {older}"
            )
        rows = connection.execute(
            "select t.id, t.name from sevenfold.tenant t join sevenfold.tenant_login l on l.tenant = t.id"
            " where l.login = session_user order by t.name"
        ).fetchall()
        found = [Tenant(*row) for row in rows if self._name in ("", row[1])]
        if len(found) != 1:
            names = ", ".join(row[1] for row in rows) or "none"
            raise Mistake(f"name a tenant that this login belongs to with --tenant; those are: {names}")
        return found[0]

    @contextmanager
    def _translate(self) -> Iterator[None]:
        psycopg = load_psycopg()
        try:
            yield
        except psycopg.Error as error:
            raise explain_error(psycopg, error) from None  # the cause may hold the address


def explain_error(psycopg: Any, error: psycopg.Error) -> Exception:
    """The error in words for people, without the address and the password in it."""
    errors = psycopg.errors
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return Failure("the database of the fleet is read-only; use the address of the primary")
    if isinstance(error, errors.DiskFull | errors.InsufficientResources):
        return FleetAway("the database of the fleet has no room left; free some and it goes on")
    if isinstance(error, errors.InsufficientPrivilege):
        return Failure("this login may not do that in the fleet's database; ask who runs it")
    if isinstance(error, errors.InvalidPassword | errors.InvalidAuthorizationSpecification):
        return Mistake("the database of the fleet does not accept this login")
    if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
        for words, sentence in _REFUSALS.items():
            if re.search(words, str(error)):
                return Mistake(sentence)
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return FleetAway("the database of the fleet cannot be reached; what is new waits on this machine")
    return Failure(
        f"the database of the fleet failed: {type(error).__name__} {error.sqlstate or ''}".rstrip()
    )


def read_migrations() -> list[str]:
    """The steps of the schema, in order."""
    folder = resources.files("sevenfold.fleet") / "migrations"
    names = sorted(one.name for one in folder.iterdir() if re.fullmatch(r"\d{4}\.sql", one.name))
    return [(folder / name).read_text(encoding="utf-8") for name in names]


def read_version(connection: Connection[Any]) -> int:
    """The version of the schema; 0 if there is none. Raises `Mistake` for a schema that is not ours."""
    row = connection.execute(
        "select to_regclass('sevenfold.migration'), to_regnamespace('sevenfold')"
    ).fetchone()
    if row is None or row[1] is None:
        return 0
    if row[0] is None:
        raise Mistake("the database has a schema 'sevenfold' that is not a fleet's; use another database")
    found = connection.execute("select coalesce(max(number), 0) from sevenfold.migration").fetchone()
    return int(found[0]) if found else 0


def _check_server(connection: Connection[Any]) -> None:
    row = connection.execute(
        "select current_setting('server_encoding'), current_setting('server_version_num')::int,"
        " pg_is_in_recovery()"
    ).fetchone()
    assert row is not None
    if row[0] != "UTF8":
        raise Mistake(f"the database is encoded as {row[0]}; make one with 'createdb --encoding=UTF8'")
    if row[1] < 130_000:
        raise Mistake("the database is older than PostgreSQL 13; use a newer one")
    if row[2]:
        raise Mistake("the database is a read-only replica; use the address of the primary")


def _add_tenant(connection: Connection[Any], name: str) -> None:
    connection.execute("insert into sevenfold.tenant (name) values (%s) on conflict do nothing", (name,))
    connection.execute(
        "insert into sevenfold.tenant_login (tenant, login)"
        " select id, session_user from sevenfold.tenant where name = %s on conflict do nothing",
        (name,),
    )
