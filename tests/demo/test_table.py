"""The table at the end of the demo says what the records say; the calls are counted twice."""

from collections import Counter

from demo.calls import Call
from demo.table import agreement, day_table, requests_at_service
from jobs.schema.columns import OUTCOMES
from jobs.schema.records import (
    DayFacts,
    DayMetrics,
    DayRecord,
    DeclaredFacts,
    LookupMetrics,
    Verdict,
)


def figures(name, **outcomes):
    counts = dict.fromkeys(OUTCOMES, 0) | outcomes
    return LookupMetrics(
        name, counts, 1_020, 20, wall_s=5.5, limit_s=5.0, latency_p50_ms=40.0, latency_p99_ms=200.0
    )


def record(*lookups, state="published", statuses=("passed", "passed", "not_run")):
    declared = DeclaredFacts("flights", "table", "input", "date", "ordered", (), ())
    facts = DayFacts(declared, "2013-01-10", "run", (), (), "folder", (), (), "start", "end")
    verdicts = tuple(
        Verdict(f"check_{number}", status, "error", "") for number, status in enumerate(statuses)
    )
    day = DayMetrics(1_000, 1_000, 76, tuple(lookups))
    return DayRecord(
        facts, day, verdicts, state=state, published_version=4 if state == "published" else None
    )


def test_each_lookup_has_a_line_with_every_outcome_and_figures_of_the_day_occur_once():
    text = day_table(
        [record(figures("weather", ok=900, miss=90, error=10), figures("plane", ok=1_000))]
    )
    head, weather, plane = (
        [cell.strip() for cell in line.split("|")] for line in text.splitlines()
    )
    assert head == [(
                    "day         lookup    rows     ok  miss  skipped  timeout  error"
                    ), "late", "calls  from ledger",
                    "wall   limit  wall/limit", "checks               published"]  # fmt: skip
    assert weather[0].split() == ["2013-01-10", "weather", "1,000", "900", "90", "0", "0", "10"]
    assert weather[1:] == [
        "76",
        "1,020            0",
        "5.50 s  5.00 s        1.10",
        "2 passed, 1 not run  version 4",
    ]
    assert plane[0].split() == ["plane", "1,000", "1,000", "0", "0", "0", "0"]
    assert plane[4:] == [""]


def test_a_rare_outcome_gets_a_column_when_it_occurs():
    assert "unknown" not in day_table([record(figures("weather", ok=1_000))])
    assert "unknown" in day_table([record(figures("weather", ok=999, unknown=1))])


def test_a_held_back_day_has_the_words_held_back_in_place_of_its_version():
    text = day_table(
        [record(figures("weather", ok=1_000), state="held back", statuses=("passed", "failed"))]
    )
    assert text.splitlines()[1].endswith("1 passed, 1 failed  held back")


def call(hour, attempt=1):
    return Call(0.0, 1.0, "EWR", hour, attempt, "ok", 1)


def test_two_counts_of_calls_agree_only_if_they_agree_key_by_key():
    calls = [call("05"), call("05", 2), call("06")]
    assert requests_at_service(calls) == "3 requests for 2 distinct keys"
    assert agreement(calls, Counter({"EWR/05": 2, "EWR/06": 1})) == (
        "audit columns: 3, the same for every key"
    )
    assert agreement(calls, Counter({"EWR/05": 1, "EWR/06": 2})) == (
        "audit columns: 3; 2 keys differ, the first: EWR/05, 2 there, 1 here"
    )
