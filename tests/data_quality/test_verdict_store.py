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


def test_each_verdict_is_a_row_with_run_versions_and_fingerprint(tmp_path):
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


def test_the_first_runs_of_a_machine_may_be_at_once(tmp_path):
    url, refused = f"sqlite:///{tmp_path}/quality.db", []
    at_once = threading.Barrier(12)

    def run():
        at_once.wait()
        try:
            save(record(tmp_path, GREEN), url)
        except VerdictsRefused as error:
            refused.append(error)

    threads = [threading.Thread(target=run) for _ in range(12)]
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
