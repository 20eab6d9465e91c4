"""The database of a fleet: its address, schema and tenants; writes, the feed, jobs and mail."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from fleet.machines import Machine

from sevenfold.core.errors import Failure, Mistake
from sevenfold.fleet.database import FleetAway, FleetDatabase, check_address, read_migrations
from sevenfold.fleet.jobs import TRIES, ClaimedJob, JobQueue, OldFence
from sevenfold.fleet.mail import FleetMail
from sevenfold.fleet.memories import ConflictingWrite, FleetMemories, NewRevision, find_space
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.store import MemoryStore
from sevenfold.testing.postgres import PostgresServer

pytest_plugins = ["fleet.fixtures"]
pytestmark = [pytest.mark.real, pytest.mark.xdist_group("postgres")]
USER = Author("user")


def new(name: str, base: int, body: bytes | None, id: str = "") -> NewRevision:
    return NewRevision(id or f"{name}-{base}-{body!r}", name, base, body, USER, "s", 1.0)


# --- the address --------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["postgresql://127.0.0.1/x", "host=/run/pg dbname=x", "host=localhost"])
def test_on_this_machine_no_tls_is_asked_for(address: str) -> None:
    assert "sslmode" not in check_address(address)


def test_elsewhere_tls_with_a_checked_certificate_is_the_rule() -> None:
    assert "sslmode=verify-full" in check_address("postgresql://u:p@db.example.org/x")
    assert "sslmode=verify-full" in check_address("host=localhost hostaddr=203.0.113.5")
    with pytest.raises(Mistake, match="in the clear; use sslmode=verify-full"):
        check_address("postgresql://db.example.org/x?sslmode=prefer")


def test_a_database_that_is_away_is_one_sentence_without_the_password() -> None:
    database = FleetDatabase("host=/nowhere dbname=x user=u password=swordfish")
    with pytest.raises(FleetAway) as away:
        database.migrate("acme")
    assert (
        str(away.value) == "the database of the fleet cannot be reached; what is new waits on this machine"
    )
    assert away.value.__cause__ is None


def test_without_an_address_it_says_which_variable_is_missing() -> None:
    with pytest.raises(FleetAway, match="SEVENFOLD_FLEET_URL is not set"):
        _ = FleetDatabase("").tenant


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("postgresql://localhost/x?prepare=off", "localhost"),
        ("postgresql://localhost/x?prepare=off&application_name=me", "application_name=me"),
        ("postgresql://localhost/x?application_name=me&prepare=off", "application_name=me"),
        ("prepare=off host=localhost", "localhost"),
    ],
)
def test_the_switch_for_poolers_is_no_part_of_the_address(given: str, kept: str) -> None:
    assert kept in FleetDatabase(given).address
    assert "prepare" not in FleetDatabase(given).address


def test_behind_a_pooler_no_statement_is_prepared(address: str) -> None:
    def count(database: FleetDatabase) -> int:
        for _ in range(8):
            find_space(database, "project", "x")
        query = "select count(*) from pg_prepared_statements"
        rows = database.run(lambda connection: connection.execute(query).fetchall())
        return int(rows[0][0])

    assert count(FleetDatabase(address, "acme")) > 0
    assert count(FleetDatabase(f"{address} prepare=off", "acme")) == 0
    with pytest.raises(Mistake, match="it is 'on' or 'off'"):
        FleetDatabase(f"{address} prepare=maybe")


# --- the schema ---------------------------------------------------------------------------------------


def test_migrating_again_changes_nothing(address: str) -> None:
    assert FleetDatabase(address).migrate("acme") == FleetDatabase(address).migrate("acme")


def test_a_database_without_a_fleet_says_how_to_make_one(server: PostgresServer) -> None:
    empty = server.make_database("empty")
    with pytest.raises(Mistake, match="sevenfold fleet init"):
        _ = FleetDatabase(empty).tenant


def test_a_schema_that_is_not_ours_is_left_alone(server: PostgresServer) -> None:
    foreign = server.make_database("foreign")
    with psycopg.connect(foreign) as connection:
        connection.execute("create schema sevenfold create table sevenfold.mine (a int)")
    with pytest.raises(Mistake, match="is not a fleet's; use another database"):
        FleetDatabase(foreign).migrate("acme")


@pytest.mark.parametrize(("number", "says"), [(99, "update this one"), (0, "sevenfold fleet init")])
def test_another_version_is_said_and_nothing_is_changed(address: str, number: int, says: str) -> None:
    with psycopg.connect(address) as connection:
        connection.execute("delete from sevenfold.migration")
        if number:
            connection.execute("insert into sevenfold.migration (number) values (%s)", (number,))
    with pytest.raises(Mistake, match=says):
        _ = FleetDatabase(address).tenant


def test_a_database_of_the_version_before_is_brought_up_to_date_and_loses_nothing(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = server.make_database("older")
    with monkeypatch.context() as older:
        older.setattr("sevenfold.fleet.database.read_migrations", lambda: read_migrations()[:1])
        database = FleetDatabase(address)
        assert database.migrate("acme") == 1
        space = find_space(database, "project", "x")
    with psycopg.connect(address) as connection:
        connection.execute(
            "insert into sevenfold.memory (tenant, space, name, rev, head) values (1, %s, 'a.md', 1, 'x')",
            (space,),
        )
        connection.execute(
            "insert into sevenfold.revision (tenant, space, id, name, rev, machine, kind, session, reason,"
            " summary, at, body) values (1, %s, 'r', 'a.md', 1, 'm', 'user', '', '', '', 0, 'x')",
            (space,),
        )
    with pytest.raises(Mistake, match="'sevenfold fleet migrate' brings it up to date"):
        _ = FleetDatabase(address).tenant

    assert FleetDatabase(address).migrate() == len(read_migrations())
    memories = FleetMemories(FleetDatabase(address, "acme"), space, "m")
    assert [(one.name, one.rev, one.body) for one in memories.read_heads()] == [("a.md", 1, b"x")]
    assert memories.write([new("a.md", 1, b"y")]) == {"a.md": 2}


def test_a_step_that_fails_leaves_nothing_behind(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = server.make_database("half")
    with monkeypatch.context() as broken:
        steps = [f"{read_migrations()[0]}; select 1 / 0"]
        broken.setattr("sevenfold.fleet.database.read_migrations", lambda: steps)
        with pytest.raises(Failure, match="the database of the fleet failed: DivisionByZero"):
            FleetDatabase(address).migrate("acme")
    with pytest.raises(Mistake, match="sevenfold fleet init"):
        _ = FleetDatabase(address).tenant
    assert FleetDatabase(address).migrate("acme") == len(read_migrations())


def test_a_database_without_room_is_said_and_the_memory_waits(tmp_path: Path, address: str) -> None:
    ann = Machine(tmp_path, address, "ann")
    with psycopg.connect(address) as connection:
        connection.execute(
            "create function full_disk() returns trigger language plpgsql as"
            " $$begin raise exception 'no room' using errcode = 'disk_full'; end$$;"
            "create trigger full_disk before insert on sevenfold.revision"
            " for each row execute function full_disk()"
        )
    ann.add("one", "Words of one.")
    with pytest.raises(FleetAway, match=r"no room left|just now"):
        ann.sync()
    with psycopg.connect(address) as connection:
        connection.execute("drop trigger full_disk on sevenfold.revision")
    again = Machine(tmp_path, address, "ann")
    again.sync()

    assert again.backend.outbox.list_waiting() == []
    assert [row.name for row in again.backend.memories.read_changes(0, 0)] == ["one.md"]


def test_an_encoding_that_loses_letters_is_refused(server: PostgresServer) -> None:
    with psycopg.connect(server.address(), autocommit=True) as connection:
        connection.execute(
            "create database latin encoding 'LATIN1' template template0 lc_collate 'C' lc_ctype 'C'"
        )
    with pytest.raises(Mistake, match="encoded as LATIN1"):
        FleetDatabase(server.address("latin")).migrate("acme")


def test_a_database_that_may_only_be_read_is_said(address: str) -> None:
    database = FleetDatabase(f"{address} options='-c default_transaction_read_only=on'")
    with pytest.raises(Failure, match="read-only; use the address of the primary"):
        find_space(database, "project", "x")


# --- tenants ------------------------------------------------------------------------------------------


@pytest.fixture
def neighbours(server: PostgresServer, address: str) -> tuple[FleetDatabase, str]:
    """A tenant with a memory, and the address of a login of another tenant."""
    database = FleetDatabase(address, "acme")
    FleetMemories(database, find_space(database, "project", "x"), "m").write([new("a.md", 0, b"ours")])
    login = f"mallory{os.getpid()}{int(time.time_ns())}"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"create role {login} login nosuperuser")
        connection.execute(f"grant sevenfold_agent to {login}")
        connection.execute("insert into sevenfold.tenant (name) values ('evil')")
        connection.execute(
            "insert into sevenfold.tenant_login select id, %s from sevenfold.tenant where name = 'evil'",
            (login,),
        )
    return database, address.replace(f"user={server.user}", f"user={login}")


TABLES = ("space", "machine", "memory", "revision", "job", "mail", "session")


def read_all(connection: psycopg.Connection[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return [row for table in TABLES for row in connection.execute(f"select * from sevenfold.{table}")]


@pytest.mark.parametrize(
    "setting",
    ["", "reset sf.tenant", "set sf.tenant = '1'", "set sf.tenant = ''", "set sf.tenant = '1 or true'"],
)
def test_no_setting_and_no_forged_one_shows_a_foreign_row(
    neighbours: tuple[FleetDatabase, str], setting: str
) -> None:
    _, address = neighbours
    with psycopg.connect(address, autocommit=True) as connection:
        if setting:
            connection.execute(setting)
        for role in ("none", "sevenfold_agent"):
            connection.execute(f"set role {role}")
            try:
                seen = read_all(connection)
            except psycopg.Error:  # a setting that is no number is an error, which shows nothing either
                seen = []
            assert seen == []


def test_a_login_writes_into_no_foreign_tenant(neighbours: tuple[FleetDatabase, str]) -> None:
    _, address = neighbours
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("set sf.tenant = '1'")
        connection.execute("set role sevenfold_agent")
        assert connection.execute("update sevenfold.memory set head = 'x'").rowcount == 0
        assert connection.execute("delete from sevenfold.revision").rowcount == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(
                "insert into sevenfold.space (tenant, kind, slug) values (1, 'project', 'y')"
            )
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("insert into sevenfold.tenant_login values (1, current_user)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("alter table sevenfold.memory disable row level security")


def test_a_login_puts_nothing_into_a_foreign_space(neighbours: tuple[FleetDatabase, str]) -> None:
    mallory = FleetDatabase(neighbours[1])
    with pytest.raises(Failure, match="ForeignKeyViolation"):
        FleetMemories(mallory, 1, "m").write([new("b.md", 0, b"theirs")])


def test_a_tenant_that_is_not_the_logins_is_refused(neighbours: tuple[FleetDatabase, str]) -> None:
    with pytest.raises(Mistake, match="those are: evil"):
        _ = FleetDatabase(neighbours[1], "acme").tenant


@pytest.mark.parametrize("name", ["x'; drop table sevenfold.memory; --", "a\\", "%s", "$1", '"', "ä\n"])
def test_sql_in_names_is_a_name(address: str, name: str) -> None:
    database = FleetDatabase(address, "acme")
    memories = FleetMemories(database, find_space(database, "project", name), name)
    memories.write([new(name, 0, b"x")])
    assert [row.name for row in memories.read_changes(0, 0)] == [name]


# --- writes and the feed ------------------------------------------------------------------------------


@pytest.fixture
def memories(address: str) -> FleetMemories:
    database = FleetDatabase(address, "acme")
    return FleetMemories(database, find_space(database, "project", "x"), "m")


def test_a_write_that_is_based_on_an_old_revision_writes_nothing(memories: FleetMemories) -> None:
    assert memories.write([new("a.md", 0, b"1")]) == {"a.md": 1}
    with pytest.raises(ConflictingWrite):
        memories.write([new("b.md", 0, b"x"), new("a.md", 0, b"2")])
    assert [(row.name, row.body) for row in memories.read_changes(0, 0)] == [("a.md", b"1")]
    assert memories.write([new("a.md", 1, None)]) == {"a.md": 2}
    assert memories.read_body("a.md", 1) == b"1"


def test_the_same_write_again_is_done_once(memories: FleetMemories) -> None:
    rows = [new("a.md", 0, b"1", "r1"), new("b.md", 0, b"1", "r1")]
    assert memories.write(rows) == memories.write(rows) == {"a.md": 1, "b.md": 1}
    assert len(memories.read_changes(0, 0)) == 2


def test_the_feed_skips_nothing_whatever_commits_first(address: str, memories: FleetMemories) -> None:
    """Transactions that overlap in every way, and a reader that never goes back."""
    rng, writers, each = random.Random(20261116), 6, 25
    seeds = [rng.random() for _ in range(writers)]

    def write(number: int) -> None:
        chance = random.Random(seeds[number])
        with psycopg.connect(address, autocommit=True) as connection:
            tenant = memories.database.tenant.id
            for n in range(each):
                with connection.transaction():
                    connection.execute("select pg_current_xact_id()") if chance.random() < 0.5 else None
                    time.sleep(chance.random() * 0.01)
                    connection.execute(
                        "insert into sevenfold.revision (tenant, space, id, name, rev, machine, kind,"
                        " session, reason, summary, at) values (%s, %s, %s, %s, 1, 'm', 'user', '', '', '',"
                        " 0)",
                        (tenant, memories.space, f"{number}-{n}", f"{number}-{n}.md"),
                    )
                    time.sleep(chance.random() * 0.01)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    seen: list[str] = []
    xid = seq = 0
    while len(seen) < writers * each:
        rows = memories.read_changes(xid, seq, limit=7)
        seen += [row.id for row in rows]
        if rows:
            xid, seq = rows[-1].xid, rows[-1].seq
        elif not any(thread.is_alive() for thread in threads) and not memories.read_changes(xid, seq):
            break
    for thread in threads:
        thread.join()
    assert sorted(seen) == sorted(f"{w}-{n}" for w in range(writers) for n in range(each))


# --- jobs ---------------------------------------------------------------------------------------------


@pytest.fixture
def jobs(memories: FleetMemories) -> JobQueue:
    return JobQueue(memories.database)


def test_the_same_work_is_asked_for_once(jobs: JobQueue, memories: FleetMemories) -> None:
    assert [jobs.add(memories.space, "dream") for _ in range(3)] == [True, False, False]
    job = jobs.claim("w", "dream")
    assert job is not None
    assert jobs.claim("v", "dream") is None
    assert not jobs.add(memories.space, "dream")
    jobs.finish(job, {"ok": True})
    assert jobs.add(memories.space, "dream")


def test_a_worker_past_its_lease_is_refused_whatever_it_writes(
    jobs: JobQueue, memories: FleetMemories
) -> None:
    jobs.add(memories.space, "dream")
    late = jobs.claim("paused", "dream", lease=0.05)
    assert late is not None
    time.sleep(0.1)
    again = jobs.claim("other", "dream")
    assert again is not None
    assert (again.id, again.fence) == (late.id, late.fence + 1)
    acts: list[Callable[[], object]] = [
        lambda: jobs.renew(late),
        lambda: jobs.finish(late, {}),
        lambda: jobs.fail(late, "why"),
        lambda: memories.write_job([[new("a.md", 0, b"late")]], late, {}, 0.0),
    ]
    for act in acts:
        with pytest.raises(OldFence):
            act()
    memories.write_job([[new("a.md", 0, b"in time")], [new("a.md", 1, b"and again")]], again, {}, 0.0)
    assert [memories.read_body("a.md", rev) for rev in (1, 2)] == [b"in time", b"and again"]
    with pytest.raises(OldFence):
        memories.write_job([[new("a.md", 2, b"twice")]], again, {}, 0.0)


def test_a_job_that_meets_a_conflict_writes_nothing_and_goes_on(
    jobs: JobQueue, memories: FleetMemories
) -> None:
    jobs.add(memories.space, "dream")
    job = jobs.claim("w", "dream")
    assert job is not None
    memories.write([new("a.md", 0, b"faster")])
    with pytest.raises(ConflictingWrite):
        memories.write_job([[new("b.md", 0, b"x")], [new("a.md", 0, b"late")]], job, {}, 0.0)
    assert [row.name for row in memories.read_changes(0, 0)] == ["a.md"]
    jobs.renew(job)


def test_work_with_a_key_is_done_once_ever(jobs: JobQueue, memories: FleetMemories) -> None:
    assert [jobs.add(memories.space, "extract", {"words": "x", "last": 1}, "s:0") for _ in range(2)] == [
        True,
        False,
    ]
    job = jobs.claim("w", "extract")
    assert job is not None
    jobs.finish(job, {})
    assert not jobs.add(memories.space, "extract", {"words": "x"}, "s:0")
    assert jobs.read_payload(memories.space, "extract", "s:0") == {"last": 1}, "the words are gone"


def test_all_workers_together_spend_no_more_than_the_limit(
    address: str, jobs: JobQueue, memories: FleetMemories
) -> None:
    with psycopg.connect(address) as connection:
        connection.execute("update sevenfold.tenant set daily_limit = 0.1")
    for number in range(4):
        jobs.add(memories.space, "extract", {"n": number})
    first, second = (jobs.claim(name, "extract", reserve=0.05) for name in "ab")
    assert first is not None
    assert second is not None
    assert jobs.claim("c", "extract", reserve=0.05) is None, "the rest is reserved"
    jobs.finish(first, {}, cost=0.01)
    assert jobs.claim("c", "extract", reserve=0.05) is None, "0.01 is spent and 0.05 reserved"
    jobs.fail(second, "no", cost=0.02)
    third = jobs.claim("c", "extract", lease=-1.0, reserve=0.05)
    assert third is not None
    assert jobs.claim("d", "extract", reserve=0.05) is None, "what went away counts as spent"


def test_a_job_that_always_fails_is_kept_to_be_looked_at(jobs: JobQueue, memories: FleetMemories) -> None:
    jobs.add(memories.space, "dream")
    for _ in range(TRIES):
        job = jobs.claim("w", "dream")
        assert job is not None
        jobs.fail(job, "the disk is full", wait=0)
    assert jobs.claim("w", "dream") is None
    [row] = jobs.list()
    assert (row.state, row.tries, row.problem) == ("dead", TRIES, "the disk is full")
    assert jobs.revive(row.id)
    assert jobs.claim("w", "dream") is not None


def test_kinds_of_work_do_not_wait_for_each_other(jobs: JobQueue, memories: FleetMemories) -> None:
    for n in range(5):
        jobs.add(memories.space, "extraction", {"n": n})
    jobs.add(memories.space, "dream")
    job = jobs.claim("w", "dream")
    assert job is not None
    assert job.kind == "dream"


# --- mail ---------------------------------------------------------------------------------------------


def test_a_letter_is_taken_once_and_in_order(memories: FleetMemories) -> None:
    mail = FleetMail(memories.database)
    sent = [mail.send("ann", "bob", b"%d" % n, f"ann-{n}") for n in range(5)]
    assert sent == [True] * 5
    assert not mail.send("ann", "bob", b"0", "ann-0")
    taken = mail.take("bob")
    assert [letter.body for letter in taken] == [b"%d" % n for n in range(5)]
    assert mail.take("bob") == []
    mail.keep("bob", *(letter.id for letter in taken))
    assert mail.take("eve") == []


def test_a_dream_of_the_fleet_is_done_by_a_worker(tmp_path: Path, address: str) -> None:
    from sevenfold.fleet.worker import FleetWorker

    ann = Machine(tmp_path, address, "ann")
    for n in range(4):
        ann.add(f"port-{n}", f"The service number {n} listens on port {8000 + n}.")
    worker = FleetWorker(FleetDatabase(address, "acme"), tmp_path / "work", "w1")
    assert worker.schedule(after=100) == 0
    assert worker.schedule(after=3) == 1

    assert worker.work("dream")

    assert worker.schedule(after=3) == 0, "a dream that found nothing to do is not due again"
    assert not worker.work("dream")
    assert worker.jobs.list() == []
    ann.sync()
    assert all(f"port {8000 + n}".encode() in b"".join(ann.texts().values()) for n in range(4))


def test_what_a_late_worker_did_is_not_sent_with_its_next_job(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sevenfold.fleet.worker import FleetWorker, JobOutcome

    ann = Machine(tmp_path, address, "ann")
    ann.add("one", "Words of one.")
    worker = FleetWorker(FleetDatabase(address, "acme"), tmp_path / "work", "w1")

    def dream_too_long(job: ClaimedJob, store: MemoryStore) -> JobOutcome:
        worker.jobs.finish(job, {})  # as if another had taken it and ended it
        store.add(type="project", name="late", description="late", body="Written too late.")
        return JobOutcome()

    worker.jobs.add(ann.backend.memories.space, "dream")
    with monkeypatch.context() as late:
        late.setitem(worker.does, "dream", dream_too_long)
        assert worker.work("dream")
    worker.jobs.add(ann.backend.memories.space, "dream")
    assert worker.work("dream")
    ann.sync()

    assert list(ann.texts()) == ["one.md"]
