"""Days whose answers come from jobs of a vendor."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from unittest.mock import Mock

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from jobs.commands.costs import list_costs
from jobs.run import enrich_day
from jobs.run.day import run_day
from jobs.run.day_run import DayRun
from jobs.run.engines.engine import ENGINE, LOCAL, SPARK
from jobs.tables.leases.day_leases import leased
from orchestration.common.table_pages import TablePages
from tests.support.vendor import PRICE
from tidegate.__main__ import main

DAY, NEXT = "2013-01-10", "2013-01-11"
TEXTS = [f"text {number}" for number in range(25)]
WAITING, STOPPED, WRONG, FAILED = 10, 3, 2, 1

CALLED = """

@lookup(name="called", service=vendor, keys={"text": "review"}, returns="x INT", timeout=5.0)
async def called(row, http):
    await http.post("/call", json={})
    return {"x": 1}


reviews = """


def labels(texts):
    return {text: ("ok", f"label of {text}") for text in texts}


def done_jobs(reviews):
    return [job.done for job in reviews.files.jobs()]


def test_a_day_waits_for_its_jobs_and_is_then_published(reviews, capsys):
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY) == WAITING
    assert "3 jobs with 25 items at vendor are open" in capsys.readouterr().out
    assert reviews.run_until_over(DAY) == 0
    assert reviews.rows() == labels(TEXTS)
    assert set(reviews.vendor.submits.values()) == {1}
    assert reviews.bill == reviews.vendor.invoice


def test_a_published_day_reports_its_number_of_jobs_and_their_cost(reviews, capsys):
    reviews.write_input(DAY, TEXTS)
    assert reviews.run_until_over(DAY) == 0
    assert "25 rows, 3 jobs, 25 answers from the ledger" in capsys.readouterr().out
    page = Path("data/reports/reviews", DAY, "index.html").read_text()
    assert "Published: 25 rows, 3 jobs, 0.10 USD" in page
    assert "<b>3</b><span>labels: jobs</span>" in page


def test_a_run_that_wrote_rows_but_no_record_leaves_its_jobs_to_the_next_one(
    reviews, monkeypatch, capsys
):
    reviews.vendor.fails[TEXTS[0]] = 2
    reviews.write_input(DAY, TEXTS[:3])
    with monkeypatch.context() as patch:
        patch.setattr(DayRun, "_judge", Mock(side_effect=OSError("the disk is full")))
        assert reviews.run_until_over(DAY) == FAILED
    assert reviews.run_until_over(DAY) == 0
    assert reviews.vendor.submits[TEXTS[0]] == 2  # as often as its retries allow
    capsys.readouterr()
    main(["show", "reviews", DAY, "--package", "declared", "--json"])
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["cost"] for run in runs if run["cost"]] == [f"{2 * PRICE} USD"]


def test_looks_that_find_nothing_new_leave_one_record_and_no_report(reviews, capsys):
    reviews.vendor.looks = 2
    reviews.write_input(DAY, TEXTS[:3])
    assert reviews.run(DAY) == WAITING
    (record,) = Path("data/runs/reviews", DAY).glob("*.unwritten")
    began = json.loads(record.read_text())["started_at"]
    pages = Path("data/reports/reviews/index.html")
    pages.unlink()
    assert reviews.run(DAY) == reviews.run(DAY) == WAITING
    assert [*Path("data/runs/reviews", DAY).glob("*.unwritten")] == [record]
    assert not pages.exists()
    assert json.loads(record.read_text())["started_at"] == began  # since when it waits
    assert reviews.run(DAY) == 0
    assert pages.exists()


LOOK = """
import sys
from tidegate.__main__ import main
status = main(sys.argv[1:])
print(sorted({"aiohttp", "jinja2", "pandas", "pyspark", "sqlalchemy"} & set(sys.modules)))
sys.exit(status)
"""


@pytest.mark.proof
@pytest.mark.process
def test_spark_is_not_started_before_all_jobs_are_over(reviews, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    reviews.write_input(DAY, TEXTS)
    assert reviews.run_elsewhere(DAY, "-m", "tidegate", options=["--engine", "spark"]) == WAITING
    assert len(reviews.vendor.jobs) == 3
    total = list_costs(f"{dt.datetime.now(dt.UTC):%Y-%m}").totals()
    assert total == {"USD": len(TEXTS) * Decimal(PRICE)}, "open jobs count at their most"
    assert reviews.run_elsewhere(DAY, "-m", "tidegate", options=["--engine", "spark"]) == WAITING
    assert reviews.run_elsewhere(DAY, "-m", "tidegate", options=["--engine", "spark"]) == 1
    assert "Spark needs Java" in reviews.output
    assert reviews.bill == reviews.vendor.invoice > 0


@pytest.mark.proof
@pytest.mark.process
def test_a_day_whose_keys_only_spark_reads_is_run_in_spark(reviews, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    reviews.write_input(DAY, TEXTS)
    declared = Path("declared/reviews.py")
    key = "\"text\": \"regexp_replace(review, 'a', 'b')\""
    declared.write_text(declared.read_text().replace('"text": "review"', key))
    assert reviews.run_elsewhere(DAY, "-m", "tidegate", options=["--engine", "spark"]) == 1
    assert "Spark needs Java" in reviews.output
    assert not reviews.vendor.jobs


@pytest.mark.proof
@pytest.mark.process
def test_an_unknown_expectation_is_refused_before_a_job_is_submitted(reviews, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    declared = Path("declared/reviews.py")
    text = declared.read_text().replace("    ledger=", "    expectations=[WRONG],\n    ledger=")
    wrong = (
        'from tidegate import Expectation\nWRONG = Expectation("expect_nothing", column="label")\n'
    )
    declared.write_text(wrong + text)
    reviews.write_input(DAY, TEXTS)
    assert reviews.run_elsewhere(DAY, "-m", "tidegate", options=["--engine", "spark"]) == WRONG
    assert "Great Expectations has no expect_nothing" in reviews.output
    assert not reviews.vendor.jobs


@pytest.mark.proof
@pytest.mark.process
def test_polling_a_job_imports_only_the_client_of_the_vendor(reviews):
    reviews.vendor.looks = 9
    reviews.write_input(DAY, TEXTS[:3])
    assert reviews.run(DAY) == WAITING
    assert reviews.run_elsewhere(DAY, "-c", LOOK) == WAITING
    assert "['aiohttp']" in reviews.output


def test_results_may_be_shuffled_repeated_foreign_and_torn(reviews):
    foreign = {"id": "of nobody here", "answer": {"label": "foreign"}}
    wrong = {"id": "A" * 22, "answer": {"label": "foreign"}}
    reviews.vendor.mangle = lambda lines: [foreign, *lines, wrong, *lines[::-1]]
    reviews.vendor.torn = True
    reviews.write_input(DAY, TEXTS)
    assert reviews.run_until_over(DAY) == 0
    assert reviews.rows() == labels(TEXTS)
    counts = [(done["unknown_ids"], done["doubled"], done["items"]) for done in done_jobs(reviews)]
    assert sorted(counts) == [(2, 5, 5), (2, 10, 10), (2, 10, 10)]
    assert reviews.bill == reviews.vendor.invoice


def test_only_items_without_a_result_are_sent_again(reviews):
    lost = TEXTS[::2]
    reviews.vendor.drops.update(lost)
    reviews.vendor.end = "expired"
    reviews.write_input(DAY, TEXTS)
    assert reviews.run_until_over(DAY) == 0
    assert reviews.rows() == labels(TEXTS)
    assert reviews.vendor.submits == {text: 2 if text in lost else 1 for text in TEXTS}
    assert reviews.bill == reviews.vendor.invoice


@pytest.mark.proof
def test_an_item_that_always_fails_is_an_error_after_its_retries(reviews, capsys):
    reviews.vendor.drops["text 3"] = 99
    reviews.vendor.fails["text 7"] = 99
    reviews.declare(retries=2)
    reviews.write_input(DAY, TEXTS)
    assert reviews.run_until_over(DAY) == 0
    assert reviews.vendor.submits["text 3"] == reviews.vendor.submits["text 7"] == 3
    expected = labels(TEXTS) | {"text 3": ("error", None), "text 7": ("error", None)}
    assert reviews.rows() == expected
    reviews.run(DAY, command="dead-letters")
    assert "cannot read text 7" in capsys.readouterr().out


@pytest.mark.proof
def test_a_day_held_back_for_errors_of_jobs_is_run_again_and_not_replayed(reviews, capsys):
    declared = Path("declared/reviews.py")
    text = declared.read_text().replace("Tolerance(error=1.0, timeout=1.0)", "Tolerance()")
    declared.write_text(text)
    reviews.vendor.fails["text 1"] = -1
    reviews.write_input(DAY, TEXTS[:3])
    assert reviews.run_until_over(DAY) == 1
    letters = TablePages("declared", Path("data/reports")).make("/letters/reviews", {})[1]
    page = Path("data/reports/reviews", DAY, "index.html").read_text()
    said = capsys.readouterr().out + letters + page
    assert f"run the day again: <code>tidegate run reviews --day {DAY}</code>" in said
    assert "replay" not in said.lower()  # which submits no jobs
    reviews.vendor.fails.clear()
    assert reviews.run_until_over(DAY) == 0
    assert reviews.rows() == labels(TEXTS[:3])


def test_an_item_that_the_vendor_refuses_is_sent_once(reviews):
    reviews.vendor.fails["text 7"] = -1
    reviews.declare(retries=2)
    reviews.write_input(DAY, TEXTS)
    assert reviews.run_until_over(DAY) == 0
    assert reviews.rows()["text 7"] == ("error", None)
    assert set(reviews.vendor.submits.values()) == {1}
    assert reviews.bill == reviews.vendor.invoice


@pytest.mark.proof
def test_an_item_without_an_answer_is_a_miss(reviews):
    reviews.vendor.misses = {"text 1"}
    reviews.write_input(DAY, TEXTS)
    assert reviews.run_until_over(DAY) == 0
    assert reviews.rows() == labels(TEXTS) | {"text 1": ("miss", None)}


def test_two_days_submit_their_common_keys_once(reviews):
    reviews.write_input(DAY, TEXTS)
    reviews.write_input(NEXT, [*TEXTS[10:], "another"])
    assert reviews.run(DAY) == WAITING
    assert reviews.run(NEXT) == WAITING
    assert reviews.run_until_over(NEXT) == reviews.run_until_over(DAY) == 0
    assert reviews.rows(NEXT) == labels([*TEXTS[10:], "another"])
    assert set(reviews.vendor.submits.values()) == {1}


@pytest.mark.proof
def test_a_day_that_another_run_holds_is_named_though_the_day_before_waits(reviews, capsys):
    reviews.declare(poll_every=1)
    reviews.write_input(DAY, ["one"])
    reviews.write_input(NEXT, ["two"])
    days = ("--from", DAY, "--to", NEXT, "--wait", "0.1", "--wait-for-jobs", "60")
    with leased("data/published/reviews", NEXT, "theirs"):
        assert main(["run", "reviews", "--package", "declared", *days]) == 1
    assert f"{NEXT} is being run by run theirs" in capsys.readouterr().err
    assert set(reviews.rows(DAY)) == {"one"}


def test_no_more_jobs_are_open_than_the_service_allows(reviews):
    reviews.declare(max_items=4, open_jobs=2)
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY) == WAITING
    assert len(reviews.vendor.jobs) == 2
    assert reviews.run_until_over(DAY) == 0
    assert reviews.rows() == labels(TEXTS)
    assert set(reviews.vendor.submits.values()) == {1}


@pytest.mark.proof
def test_a_vendor_that_accepts_no_job_now_gets_the_keys_later(reviews, capsys):
    reviews.vendor.refuse = 429
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY) == WAITING
    assert "vendor takes no job now" in capsys.readouterr().out
    reviews.vendor.refuse = None
    assert reviews.run_until_over(DAY) == 0
    assert set(reviews.vendor.submits.values()) == {1}


@pytest.mark.proof
@pytest.mark.parametrize("recovery", ["list", "none"])
def test_a_refused_submission_stops_the_day_as_wrong_and_costs_nothing(reviews, recovery, capsys):
    reviews.declare(recovery)
    reviews.vendor.refuse = 400
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY) == WRONG
    assert "too many jobs" in capsys.readouterr().out
    assert reviews.bill == 0
    reviews.vendor.refuse = None
    assert reviews.run_until_over(DAY) == 0


@pytest.mark.parametrize("status", [400, 403, 429])
def test_a_vendor_that_repeats_a_personal_key_is_not_quoted(reviews, capsys, status):
    async def refuse(request):
        return web.json_response({"error": await request.text()}, status=status)

    reviews.declare(pii=["review"])
    reviews.vendor._submit = refuse
    reviews.write_input(DAY, ["secretville"])
    reviews.run(DAY)
    told = "".join(capsys.readouterr())
    assert str(status) in told
    kept = [file for file in Path("data").rglob("*.json") if file.is_file()]
    assert kept
    assert "secretville" not in told + "".join(file.read_text() for file in kept)


@pytest.mark.proof
def test_an_error_of_a_vendor_class_at_a_personal_key_names_the_line_and_not_the_key(
    reviews, capsys
):
    reviews.declare(pii=["review"])
    path = Path("declared/reviews.py")
    text = path.read_text().replace("item.row.text}", "{}[item.row.text]}")
    path.write_text(text)
    line = text[: text.index("{}[item")].count("\n") + 1
    reviews.write_input(DAY, ["secretville"])
    assert reviews.run(DAY) not in (0, 10)
    told = "".join(capsys.readouterr())
    assert f"its class Labels failed: KeyError at line {line} of reviews.py: its error may" in told
    assert "`try`" not in told
    assert "secretville" not in told


def test_a_job_that_the_vendor_refuses_as_a_whole_stops_the_day_as_wrong(reviews, capsys):
    reviews.vendor.end = "rejected"
    reviews.write_input(DAY, TEXTS[:3])
    assert reviews.run(DAY) == WAITING
    assert reviews.run_until_over(DAY) == WRONG
    assert "line 1 is no item" in capsys.readouterr().out
    assert reviews.bill == 0


def test_a_submission_with_a_lost_response_is_found_in_the_list_of_jobs(reviews):
    reviews.vendor.lose = {1, 2}
    reviews.vendor.hidden_looks = 3
    reviews.write_input(DAY, TEXTS)
    assert reviews.run_until_over(DAY) == 0
    assert reviews.rows() == labels(TEXTS)
    assert set(reviews.vendor.submits.values()) == {1}
    assert reviews.bill == reviews.vendor.invoice


@pytest.mark.proof
def test_a_submission_with_a_lost_response_is_repeated_with_its_token(reviews):
    reviews.declare("token")
    reviews.vendor.lose = {1, 2}
    reviews.write_input(DAY, TEXTS)
    assert reviews.run_until_over(DAY) == 0
    assert reviews.rows() == labels(TEXTS)
    assert set(reviews.vendor.submits.values()) == {1}


def test_without_recovery_a_lost_job_is_unknown_and_never_sent_again(reviews, capsys):
    reviews.declare("none")
    reviews.vendor.lose = {2}
    reviews.write_input(DAY, TEXTS)
    assert reviews.run_until_over(DAY) == 0
    rows = reviews.rows()
    lost = {text for _, text in reviews.vendor.jobs["job-2"].items}
    assert rows == labels(TEXTS) | dict.fromkeys(lost, ("unknown", None))
    assert reviews.run(DAY) == 0
    assert set(reviews.vendor.submits.values()) == {1}
    reviews.run(DAY, command="dead-letters")
    assert "tidegate jobs forget" in capsys.readouterr().out


@pytest.mark.proof
def test_a_job_that_takes_too_long_is_cancelled_and_its_results_are_used(reviews):
    reviews.vendor.looks = 99
    reviews.declare(give_up=0.2)
    reviews.write_input(DAY, TEXTS[:3])
    assert reviews.run(DAY) == WAITING
    assert reviews.run_until_over(DAY, most=1_000) == 0
    assert reviews.rows() == labels(TEXTS[:3])
    assert [done["state"] for done in done_jobs(reviews)] == ["cancelled"]


@pytest.mark.proof
def test_a_job_that_takes_too_long_and_cannot_be_cancelled_is_given_up(reviews):
    reviews.vendor.looks = 99
    reviews.declare(give_up=0.2, cancels=False)
    reviews.write_input(DAY, TEXTS[:3])
    assert reviews.run(DAY) == WAITING
    assert reviews.run_until_over(DAY, most=1_000) == 0
    assert reviews.rows() == dict.fromkeys(TEXTS[:3], ("error", None))
    assert [done["state"] for done in done_jobs(reviews)] == ["given up"]
    assert len(reviews.vendor.jobs) == 1


def test_a_cap_bounds_the_items_of_all_lookups_and_runs_of_a_command(reviews, capsys):
    reviews.declare(poll_every=0.05, second=True)
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY, "--max-calls", "30", "--wait-for-jobs", "60") == STOPPED
    assert reviews.vendor.submits.total() == 30
    assert "20 keys are not submitted, because max_calls 30 allows no more" in (
        " ".join(capsys.readouterr().out.split())
    )
    assert reviews.run(DAY, "--max-cost", "0.02 USD") == WAITING
    assert reviews.vendor.submits.total() == 35
    assert reviews.run_until_over(DAY) == 0
    assert set(reviews.vendor.submits.values()) == {2}  # by each lookup


@pytest.mark.parametrize("first", [False, True])
def test_items_of_a_lost_job_and_calls_share_a_cap(reviews, monkeypatch, first):
    async def called(request, _):
        return web.json_response({}) if request.path == "/call" else None

    reviews.declare("none")
    reviews.add_lookup(CALLED)
    reviews.vendor.lose, reviews.vendor.odd = {1}, called
    reviews.write_input(DAY, TEXTS[:4])
    if first:  # the items in a program of their own, as before Spark
        monkeypatch.setenv(ENGINE, SPARK)
        monkeypatch.setattr(
            enrich_day, "run_day", lambda *of, **more: run_day(*of, **more | {"engine": LOCAL})
        )
    assert reviews.run(DAY, "--max-calls", "6") == STOPPED
    assert len(reviews.vendor.jobs["job-1"].items) == 4
    assert reviews.vendor.log.count(("POST", "/call")) == 2


CALLED_BEFORE = """

@lookup(service=vendor, keys={"text": "review"}, returns="known STRING", timeout=5.0)
async def called(row, http):
    return await http.get("/call")


@jobs(when="called_status = 'miss'",\
"""


def pass_hours(hours, lookup="called"):
    """Makes the answers of the lookup, and the time since when a day waits, older."""
    for part in Path(f"data/ledger/{lookup}").rglob("parts/*/*.parquet"):
        table = pq.read_table(part)
        times = pc.subtract(table["answered_at"], dt.timedelta(hours=hours))
        place = table.column_names.index("answered_at")
        pq.write_table(table.set_column(place, table.schema.field(place), times), part)
    for waiting in Path("data/ledger/labels").rglob("waiting/*.json"):
        facts = json.loads(waiting.read_text())
        waiting.write_text(json.dumps(facts | {"since": facts["since"] - 3600 * hours}))


def test_a_waiting_day_does_not_ask_again_for_misses_that_led_to_its_jobs(reviews):
    async def missing(request, _):
        return web.Response(status=404) if request.path == "/call" else None

    path = Path("declared/reviews.py")
    text = path.read_text().replace("\n\n@jobs(", CALLED_BEFORE)
    path.write_text(text.replace("lookups=[Labels]", "lookups=[called, Labels]"))
    reviews.vendor.odd = missing
    reviews.write_input(DAY, TEXTS[:3])
    assert reviews.run(DAY) == WAITING
    pass_hours(25)  # a miss holds for a day
    assert reviews.run_until_over(DAY) == 0
    assert reviews.vendor.log.count(("GET", "/call")) == 3
    assert reviews.rows() == labels(TEXTS[:3])


def test_a_waiting_day_does_not_use_answers_that_expired_before_it_began_to_wait(reviews):
    reviews.declare(ttl="Ttl(ok=timedelta(hours=48))", give_up=24 * 3600)
    reviews.write_input(DAY, TEXTS[:1])
    assert reviews.run_until_over(DAY) == 0
    pass_hours(49, "labels")
    reviews.vendor.fails[TEXTS[0]] = -1
    reviews.write_input(NEXT, TEXTS[:1])
    assert reviews.run(NEXT) == WAITING
    pass_hours(2, "labels")
    assert reviews.run_until_over(NEXT) == 0
    assert reviews.rows(NEXT) == {TEXTS[0]: ("error", None)}


def test_a_day_by_jobs_shows_which_file_of_the_ledger_is_damaged(reviews, capsys):
    reviews.write_input(DAY, TEXTS[:1])
    assert reviews.run_until_over(DAY) == 0
    (part,) = Path("data/ledger/labels").rglob("parts/*/*.parquet")
    part.write_bytes(part.read_bytes()[:-9])
    assert reviews.run_until_over(DAY) == 0
    shown = capsys.readouterr().out
    assert "lookup labels: 1 damaged file of its ledger cannot be read" in shown
    assert str(part) in shown


def test_no_file_of_jobs_has_a_personal_key(reviews):
    reviews.declare(pii=["review"])
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY) == WAITING

    for intent in Path("data/ledger").rglob("intent.parquet"):
        assert pq.read_table(intent).column_names == ["key"]
        assert b"text 1" not in intent.read_bytes()
        assert "text 1" not in json.dumps(pq.read_table(intent).to_pylist())
    assert reviews.run_until_over(DAY) == 0
    assert reviews.rows() == labels(TEXTS)


@pytest.mark.proof
def test_a_command_may_wait_for_jobs(reviews, capsys):
    reviews.declare(poll_every=0.05)
    reviews.vendor.drops["text 3"] = 1
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY, "--wait-for-jobs", "60") == 0
    assert reviews.rows() == labels(TEXTS)
    assert "waiting" not in capsys.readouterr().out
