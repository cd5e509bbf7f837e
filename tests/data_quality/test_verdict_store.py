import dataclasses
import threading

import pytest
import sqlalchemy as sa
from honest_day import Day, declare

from data_quality.verdict_store import VERDICTS, VerdictsRefused, require, save
from jobs.schema.records import DayMetrics, DayRecord, Verdict

RED = Verdict(
    "every_row_once", "failed", "error", "1 row lost", 1, 10, "each once", ({"flight": 3},)
)
GREEN = Verdict("order_held", "passed", "error", "10 rows in order", 0, 10)


def new_database(postgres):
    return postgres.url(postgres.new_database(), driver="postgresql+psycopg2")


def record(tmp_path, *verdicts: Verdict) -> DayRecord:
    return DayRecord(
        Day(tmp_path, declare(), {}, {}, ()).facts(), DayMetrics(10, 9, 0, ()), verdicts
    )


def rows(url: str) -> list[dict]:
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = [
            dict(row._mapping)
            for row in connection.execute(sa.select(VERDICTS).order_by("check_name"))
        ]
    engine.dispose()
    return found


def test_a_stored_verdict_is_a_row_with_run_versions_and_fingerprint(tmp_path):
    url = f"sqlite:///{tmp_path}/deep/quality.db"
    assert save(record(tmp_path, RED, GREEN), url) == 2
    red, _ = rows(url)
    assert (red["enrichment"], red["day"], red["run_id"], red["check_name"]) == (
        "flights_enriched",
        "2013-01-10",
        "r1",
        "every_row_once",
    )
    assert (red["status"], red["severity"], red["unexpected_count"]) == ("failed", "error", 1)
    assert (red["fingerprint"], red["versions"]) == ("f1", '{"tidegate": "0"}')
    assert red["evidence"] == '[{"flight": 3}]'


def test_saving_a_run_again_replaces_its_rows(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/quality.db"
    monkeypatch.setenv("TIDEGATE_QUALITY_URL", url)
    save(record(tmp_path, RED, GREEN))
    save(record(tmp_path, GREEN))
    assert [row["check_name"] for row in rows(url)] == ["order_held"]


@pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.process)]
)
def test_first_runs_at_the_same_time_create_the_verdict_tables_once(tmp_path, request, database):
    url, refused = f"sqlite:///{tmp_path}/quality.db", []
    if database == "postgresql":
        url = new_database(request.getfixturevalue("postgres"))
    at_once = threading.Barrier(12)

    def run(number):
        of_run = record(tmp_path, GREEN)
        facts = dataclasses.replace(of_run.facts, run_id=f"r{number}")
        at_once.wait()
        try:
            save(dataclasses.replace(of_run, facts=facts), url)
        except VerdictsRefused as error:
            refused.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == []


def test_a_password_in_the_query_of_the_address_is_not_shown():
    with pytest.raises(VerdictsRefused) as refused:
        require("postgresql://localhost:1/x?user=u&password=SECRET")
    assert "SECRET" not in str(refused.value)
    assert "postgresql://localhost:1/x " in str(refused.value)


def as_role(url, role, rights):
    """The address of a database for a new role with these rights on the table alone."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in (
            f"CREATE ROLE {role} LOGIN PASSWORD 'secret'",
            f"GRANT {rights} ON verdicts TO {role}",
            "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        ):
            connection.exec_driver_sql(statement)
    engine.dispose()
    return (
        sa.make_url(url).set(username=role, password="secret").render_as_string(hide_password=False)
    )


def test_the_role_of_a_run_may_lack_the_right_to_create_tables(tmp_path, postgres):
    url = new_database(postgres)
    save(record(tmp_path, RED), url)
    save(record(tmp_path, GREEN), as_role(url, "writer", "SELECT, INSERT, DELETE"))
    assert [row["check_name"] for row in rows(url)] == ["order_held"]


@pytest.mark.parametrize("rights", ["SELECT, INSERT", "SELECT, DELETE"])
def test_a_role_that_cannot_write_is_refused_before_the_run(tmp_path, postgres, rights):
    url = new_database(postgres)
    save(record(tmp_path, RED), url)
    role = f"may_{rights[8:].lower()}"
    with pytest.raises(VerdictsRefused, match="cannot store them: permission denied"):
        require(as_role(url, role, rights))
