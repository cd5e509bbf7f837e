"""`tidegate jobs`, and what other commands know of jobs."""

import datetime as dt
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.commands.costs import list_costs
from jobs.ledger.answers import StoredAnswer
from jobs.ledger.changes.erasure import forget
from jobs.ledger.job_files import KEY, Intent
from jobs.ledger.keys import key_text
from tidegate.__main__ import main

DAY = "2013-01-10"
TEXTS = [f"text {number}" for number in range(25)]
WAITING = 10


def jobs(*arguments):
    return main(["jobs", *arguments, "--package", "declared"])


def jobs_listed(capsys, *arguments):
    capsys.readouterr()
    assert jobs("list", "--json", *arguments) == 0
    return json.loads(capsys.readouterr().out)["jobs"]


def total(reviews):
    (job, *_) = reviews.files.jobs()
    at = job.done.get("at") or reviews.files.intent(job.token).at
    month = f"{dt.datetime.fromtimestamp(at, dt.UTC):%Y-%m}"
    return list_costs(month, "reviews").totals().get("USD", 0)


def test_a_replay_of_jobs_is_refused_with_and_without_a_reason(reviews, capsys):
    for chosen in ((), ("--where", "too long"), ("--where", "too long", "--run")):
        assert reviews.run(DAY, *chosen, command="replay") == 2
        assert "lookup labels: a replay submits no jobs" in capsys.readouterr().err


def test_a_refresh_submits_the_marked_answers_in_a_job_and_no_others(reviews):
    reviews.write_input(DAY, TEXTS)
    assert reviews.run_until_over(DAY) == 0
    reviews.vendor.label = "new label of {}".format
    where = "answer.label = 'label of text 1'"
    refresh = ["refresh", "labels", "--where", where, "--run", "--package", "declared"]
    while (status := main(refresh)) == WAITING:
        assert len(reviews.vendor.jobs) == 4
    assert status == 0
    assert reviews.vendor.submits == Counter(TEXTS) + Counter(["text 1"])
    new = {"text 1": ("ok", "new label of text 1")}
    assert reviews.rows() == {text: ("ok", f"label of {text}") for text in TEXTS} | new


def test_jobs_are_listed_with_their_state_and_cost(reviews, capsys):
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY) == 10
    states = [(job["state"], job["items"], job["cost"]) for job in jobs_listed(capsys)]
    assert sorted(states) == [
        ("open", 5, "0.0200"), ("open", 10, "0.0400"), ("open", 10, "0.0400")
    ]  # fmt: skip
    assert reviews.run_until_over(DAY) == 0
    assert jobs_listed(capsys) == []
    done = jobs_listed(capsys, "--all")
    assert {(job["state"], job["day"]) for job in done} == {("completed", DAY)}
    assert jobs() == 0
    assert (
        "No job is open; `tidegate jobs --all` lists those that ended." in capsys.readouterr().out
    )


def test_costs_count_open_jobs_whole_and_others_as_the_vendor_bills(reviews, capsys):
    reviews.vendor.drops.update(TEXTS[:5])
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY) == 10
    assert f"{total(reviews):.4f}" == "0.1000"
    assert reviews.run_until_over(DAY) == 0
    assert total(reviews) == reviews.vendor.invoice
    assert main(["show", "reviews", DAY, "--package", "declared", "--json"]) == 0
    assert '"0.1000"' in capsys.readouterr().out  # the record has the bill of the day's jobs


TOKENS = 'Price("1 USD", per="token", at_most=7)'  # that no answer of the vendor reports


@pytest.mark.parametrize(
    ("declared", "sum_of_four"),
    [({"prices": TOKENS}, "28"), pytest.param({}, "0.016", marks=pytest.mark.proof)],
)
def test_costs_count_what_the_stored_results_of_jobs_saved(reviews, declared, sum_of_four):
    reviews.declare(**declared)
    reviews.vendor.fails[TEXTS[4]] = -1  # is asked on both days
    for day in (DAY, "2013-01-11"):  # the second asks for the same texts
        reviews.write_input(day, TEXTS[:5])
        reviews.run_until_over(day)
    (charge,) = list_costs(f"{dt.datetime.now(dt.UTC):%Y-%m}").by_lookup()
    told = Decimal(charge.billed.cost), Decimal(charge.billed.saved)
    assert told == (Decimal(sum_of_four), Decimal(sum_of_four))


def test_a_plan_counts_the_keys_of_open_jobs_apart(reviews, capsys):
    reviews.declare(max_items=10, open_jobs=1)
    reviews.write_input(DAY, TEXTS)
    assert reviews.run(DAY) == 10
    capsys.readouterr()
    assert reviews.run(DAY, command="plan") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "because: no answer stored 15, in an open job 10" in text
    assert "requests 2 10 items each" in text
    assert "cost 0.0600 USD" in text
    expired = [StoredAnswer(key_text((text,)), "miss", None, 1, "earlier") for text in TEXTS]
    reviews.files.folder.write_part("earlier", "0-0", expired)
    assert reviews.run(DAY, command="plan") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "asked anew 25 because: ttl run out 15, in an open job 10" in text


@pytest.mark.proof
def test_a_cancelled_job_gives_its_results_and_the_rest_is_sent_again(reviews, capsys):
    reviews.vendor.looks = 9
    reviews.write_input(DAY, TEXTS[:3])
    assert reviews.run(DAY) == 10
    (job,) = jobs_listed(capsys)
    assert jobs("cancel", job["token"]) == 0
    assert reviews.run_until_over(DAY) == 0
    assert [job["state"] for job in jobs_listed(capsys, "--all")] == ["cancelled"]


def test_a_job_whose_submission_is_not_confirmed_cannot_be_cancelled(reviews, capsys):
    reviews.files.write_intent("doubt", Intent(pa.table({KEY: ['["text 1"]']}), "run", 0.0))
    assert jobs("cancel", "doubt") == 2
    assert "job doubt: its submission is not confirmed" in capsys.readouterr().err


def test_keys_of_a_forgotten_job_may_be_submitted_again(reviews, capsys):
    reviews.declare("none")
    reviews.vendor.lose = {1}
    reviews.write_input(DAY, TEXTS[:3])
    assert reviews.run(DAY) == 0
    assert set(reviews.rows().values()) == {("unknown", None)}
    (job,) = jobs_listed(capsys)
    assert job["state"] == "submission not confirmed"
    assert jobs("forget", job["token"]) == 0
    assert reviews.run_until_over(DAY) == 0
    assert {status for status, _ in reviews.rows().values()} == {"ok"}


def test_the_message_about_a_forgotten_job_counts_its_erased_items_too(reviews, capsys):
    reviews.declare("none")
    reviews.vendor.lose = {1}
    reviews.write_input(DAY, TEXTS[:3])
    assert reviews.run(DAY) == 0
    (job,) = jobs_listed(capsys)
    forget(reviews.files.folder, ['["text 1"]'])
    assert jobs("forget", job["token"]) == 0
    assert "with 3 items is forgotten: it counts as billed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show"], "name the token"),
        (["list", "abc"], "takes no token"),
        (["forget", "abc"], "no lookup of declared has a job 'abc'"),
    ],
)
def test_a_wrong_use_of_the_jobs_command_is_refused_in_one_sentence(
    reviews, capsys, arguments, sentence
):
    assert jobs(*arguments) == 2
    assert sentence in capsys.readouterr().err


def test_forget_erases_a_key_from_the_intents_of_jobs(reviews):
    reviews.write_input(DAY, TEXTS)
    assert reviews.run_until_over(DAY) == 0
    forget(reviews.files.folder, ['["text 3"]'])
    intents = [reviews.files.intent(job.token) for job in reviews.files.jobs()]
    keys = {key for intent in intents for key in intent.keys[KEY].to_pylist()}
    assert keys == {f'["{text}"]' for text in TEXTS} - {'["text 3"]'}
    for file in Path("data/ledger").rglob("*.parquet"):
        assert b"text 3" not in file.read_bytes()


def test_a_job_of_two_enrichments_with_one_ledger_is_listed_once(reviews, capsys):
    Path("declared/others.py").write_text(
        "from dataclasses import replace\n"
        "from declared.reviews import Ledger, Output, reviews\n"
        'ledger, output = Ledger("./data/ledger"), Output(path="data/published/others")\n'
        'others = replace(reviews, name="others", ledger=ledger, output=output)\n'
    )
    reviews.write_input(DAY, TEXTS[:5])
    assert reviews.run(DAY) == 10
    assert [job["items"] for job in jobs_listed(capsys)] == [5]


CLEANED = """

@lookup(
    service=vendor, keys={"text": "review"}, returns="cleaned STRING", timeout=5.0,
    ttl=Ttl(ok=timedelta(hours=1)),
)
async def called(row, http):
    return await http.get("/clean")
"""


def test_jobs_that_read_answers_which_expire_before_give_up_are_refused(reviews, capsys):
    reviews.declare(give_up=7200)
    path = Path("declared/reviews.py")
    text = path.read_text().replace('keys={"text": "review"}', 'keys={"text": "cleaned"}')
    text = text.replace("lookups=[Labels]", "lookups=[called, Labels]")
    path.write_text(text.replace("\n\n@jobs(", f"{CLEANED}\n\n@jobs("))
    assert main(["check", "--package", "declared"]) != 0
    said = "".join(capsys.readouterr())
    assert "lookup labels reads answers of called, whose ttl.ok is 1:00:00, and give_up is" in said
