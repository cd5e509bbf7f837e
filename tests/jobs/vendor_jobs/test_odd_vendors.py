"""Vendors that answer late, half, or not at all: nothing is paid twice, and no day waits for ever.

The runs are the driver's steps, by the clock of the test: no row is written.
"""

import asyncio
import contextlib
import re
import socket
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from aiohttp import web

from jobs.clients.vendor_session import VendorSession
from jobs.commands import costs
from jobs.commands.vendor_jobs import find_jobs
from jobs.declare.vendor_jobs import Failed, Over, Refused, Running
from jobs.errors import DeclarationError, LedgerError, TidegateError
from jobs.ledger.changes.erasure import forget
from jobs.ledger.job_files import JobFiles
from tests.support.job_steps import Steps
from tidegate import Price

NEXT = "2013-01-11"
TEXTS = ["text 1", "text 2", "text 3"]
HOUR = 3600.0


@pytest.fixture
def steps(reviews):
    return Steps(reviews, TEXTS)


def all_but(first, *others):
    """The cases of a test, of which `make test` runs the first."""
    return [first, *(pytest.param(other, marks=pytest.mark.proof) for other in others)]


def refuse(status, *, only=None, most=99, **headers):
    """Answers with this status. only: the last word of the request's path, or its method."""

    async def answer(request, parts):
        nonlocal most
        if only not in (None, request.method, parts[-1]) or not most:
            return None
        most -= 1
        return web.json_response({"error": "odd"}, status=status, headers=headers)

    return answer


def check_paid_once(reviews):
    assert set(reviews.vendor.submits.values()) == {1}
    assert reviews.bill == reviews.vendor.invoice


# -- classes -----------------------------------------------------------------------------------------
class Class:
    """What a method of the class gives, in place of the method."""

    def __init__(self, reviews, monkeypatch):
        self._class, self._patch = reviews.lookup.function, monkeypatch

    def gives(self, **values):
        for name, value in values.items():

            async def method(*_, value=value):
                return value() if callable(value) else value

            self._patch.setattr(self._class, name, method)


@pytest.fixture
def written(reviews, monkeypatch):
    return Class(reviews, monkeypatch)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: Over(3), "Over.reason must be str, not int"),
        (lambda: Running("3"), "Running.done must be int | None, not str"),
        (lambda: Refused({"code": 7}), "Refused.reason must be str, not dict"),
        (lambda: Failed(None), "Failed.reason must be str, not NoneType"),
    ],
)
def test_a_result_of_a_wrong_type_is_reported_as_an_error_of_the_class(steps, written, made, words):
    steps.run()
    written.gives(state=made)
    with pytest.raises(
        TidegateError, match=f"its class Labels failed: TypeError: {re.escape(words)}"
    ):
        steps.run()


@pytest.mark.parametrize("found", [{"id": "job-1"}, False, ""])
def test_an_invalid_job_id_is_not_stored(steps, written, found):
    steps.reviews.vendor.odd = refuse(409, only="POST", most=1)
    steps.run()
    written.gives(find=found)
    with pytest.raises(TidegateError, match="it must give the id of the job, None"):
        steps.run()
    (job,) = find_jobs("declared")
    assert job.job.id == ""


def test_no_message_shows_the_reply_to_a_submission(steps, written):
    written.gives(submit={"id": "job-1", "echo": "maria@x.org"})
    assert "maria" not in steps.run().sentence


def test_a_vendors_message_about_a_personal_key_is_not_shown(steps, written):
    async def reasons():
        async with VendorSession(steps.reviews.lookup, hidden=True) as vendor:
            for made in (Refused("no such person: maria"), Over("maria"), Over("expired")):
                written.gives(state=made)
                yield (await vendor.state("job-1")).reason

    async def words():
        return [reason async for reason in reasons()]

    refused, over, ended = asyncio.run(words())
    assert "maria" not in refused + over
    assert ended == "expired"


def test_a_class_that_fails_before_its_first_request_is_not_called_refused(steps, written):
    written.gives(submit=lambda: {}["api_version"])
    with pytest.raises(DeclarationError, match="its class Labels failed: KeyError: 'api_version'"):
        steps.run()


# -- submissions -----------------------------------------------------------------------------------
@pytest.mark.parametrize("recovery", all_but("none", "list", "token"))
@pytest.mark.parametrize("status", all_but(403, 429))
def test_a_temporary_refusal_counts_as_no_job(steps, recovery, status):
    steps.reviews.declare(recovery)
    steps.reviews.vendor.odd = refuse(status, only="POST", most=1, **{"Retry-After": "1"})
    step = steps.run()
    assert step.sentence.startswith(f"lookup labels: vendor takes no job now: {status} ")
    assert "1970" not in step.sentence
    assert steps.run_until_over().outcomes == {"ok": 3}
    check_paid_once(steps.reviews)


@pytest.mark.parametrize("recovery", all_but("token", "list", "none"))
@pytest.mark.parametrize("status", all_but(409, 408, 499))
def test_a_submission_answered_by_a_gateway_error_may_have_made_a_job(steps, recovery, status):
    async def taken_and_refused(request, _):
        if request.method != "POST" or vendor.jobs:
            return None
        sent = await request.json()
        vendor.take(sent["token"], sent["items"])
        return web.json_response({}, status=status)

    vendor = steps.reviews.vendor
    steps.reviews.declare(recovery)
    vendor.odd = taken_and_refused
    step = steps.run_until_over()
    assert set(vendor.submits.values()) == {1}
    assert step.outcomes == {"asked" if recovery == "none" else "ok": 3}


def test_a_listed_job_is_found_although_its_submission_was_refused_later(steps):
    """The class submits by two requests, of which the first spends."""

    async def second_is_refused(request, parts):
        if parts[-1] == "start":
            return web.json_response({"error": "no"}, status=400)
        return None

    reviews = steps.reviews
    reviews.declare()
    submit = reviews.lookup.function.submit

    async def submit_and_start(self, items, token, http):
        job = await submit(self, items, token, http)
        await http.post(f"/jobs/{job}/start")
        return job

    reviews.lookup.function.submit = submit_and_start
    reviews.vendor.odd = second_is_refused
    assert steps.run_until_over().outcomes == {"ok": 3}
    check_paid_once(reviews)


def test_a_submission_whose_last_request_was_not_sent_made_no_job(steps):
    reviews = steps.reviews
    reviews.declare("none")
    submit = reviews.lookup.function.submit
    with socket.create_server(("127.0.0.1", 0)) as closed:
        refuses = f"http://127.0.0.1:{closed.getsockname()[1]}"

    async def ask_and_submit(self, items, token, http):
        await http.get("/jobs")
        http._session.base_url = refuses
        return await submit(self, items, token, http)

    reviews.lookup.function.submit = ask_and_submit
    assert "vendor takes no job now: cannot connect" in steps.run().sentence
    reviews.lookup.function.submit = submit
    assert steps.run_until_over().outcomes == {"ok": 3}
    check_paid_once(reviews)


def test_a_submission_that_arrives_late_is_found_in_the_list(steps):
    steps.reviews.vendor.delays = 1
    steps.run()
    assert "its submission may still arrive" in steps.run().sentence
    steps.reviews.vendor.take(*steps.reviews.vendor.delayed.pop())
    assert steps.run_until_over().outcomes == {"ok": 3}
    check_paid_once(steps.reviews)


def test_a_submission_that_never_arrives_is_repeated(steps):
    steps.reviews.vendor.delays = 1
    assert steps.run_until_over().outcomes == {"ok": 3}
    check_paid_once(steps.reviews)
    assert [job.done["state"] for job in steps.reviews.files.jobs()].count("never submitted") == 1


@pytest.mark.parametrize("recovery", all_but("list", "token"))
def test_a_job_that_stays_in_doubt_ends_as_unknown(steps, recovery):
    reviews, vendor = steps.reviews, steps.reviews.vendor
    reviews.declare(recovery, give_up=HOUR, open_jobs=1)
    vendor.lose = {1}
    steps.run()
    vendor.hidden_looks = 999
    vendor.odd = refuse(503, only="POST")
    assert steps.run().sentence
    steps.now += HOUR
    assert steps.run().outcomes == {"asked": 3}
    vendor.odd = None  # a vendor forgets tokens: this one would take it as a new job
    vendor.recognizes_tokens = False
    step = steps.run()
    assert step.outcomes == {"asked": 3}
    assert "tidegate jobs forget" in step.words
    assert set(vendor.submits.values()) == {1}
    assert steps.run_until_over(["another"], NEXT).outcomes == {"ok": 1}  # it holds no slot


def test_a_lost_job_is_open_again_when_a_later_poll_finds_it(steps):
    reviews, vendor = steps.reviews, steps.reviews.vendor
    reviews.declare(max_items=2, give_up=HOUR)
    vendor.lose, vendor.looks = {1}, 0
    vendor.hidden_looks = 1
    steps.run()  # the first job is in doubt
    steps.run()  # the second is accepted
    steps.now += HOUR
    vendor.jobs["job-1"].looks, vendor.hidden_looks = 99, 1
    assert steps.run().sentence  # the first look stores the second job, the next finds the first
    assert steps.run_until_over(pause=HOUR / 4).outcomes == {"ok": 3}
    check_paid_once(reviews)


def test_a_run_that_lost_the_lock_submits_no_job(steps, monkeypatch):
    reviews = steps.reviews
    reviews.declare("token")
    write, locked = JobFiles.write_intent, JobFiles.locked

    def write_after_another_run(files, token, intent):
        monkeypatch.setattr(JobFiles, "write_intent", write)
        monkeypatch.setattr(JobFiles, "locked", locked)
        # this run is paused, so the other one gets its lock
        other = threading.Thread(target=lambda: steps.run(day=NEXT))
        other.start()
        other.join()
        write(files, token, intent)

    @contextlib.contextmanager
    def lost(_):
        yield
        raise LedgerError("the lock is lost")

    monkeypatch.setattr(JobFiles, "write_intent", write_after_another_run)
    monkeypatch.setattr(JobFiles, "locked", lost)
    with pytest.raises(LedgerError):
        steps.run()
    assert steps.run_until_over().outcomes == {"ok": 3}
    check_paid_once(reviews)


def test_jobs_of_a_day_that_is_never_run_again_free_their_slots(steps):
    steps.reviews.declare(open_jobs=1)
    steps.run()
    assert "1 key is not submitted yet" in steps.run(["another"], NEXT).sentence
    assert steps.run_until_over(["another"], NEXT).outcomes == {"ok": 1}


@pytest.mark.parametrize(
    "refused_by", ["the vendor", pytest.param("the network", marks=pytest.mark.proof)]
)
def test_a_job_in_doubt_stays_in_doubt_while_its_recovery_is_refused(
    steps, monkeypatch, refused_by
):
    reviews = steps.reviews
    reviews.declare("token")
    reviews.vendor.lose = {1}  # it takes the job, and its answer is lost
    steps.run()
    if refused_by == "the vendor":
        reviews.vendor.refuse = 429
        steps.run()
        reviews.vendor.refuse = None
    else:
        with monkeypatch.context() as patch:
            patch.setenv("VENDOR_URL", "http://127.0.0.1:9")
            reviews.declare("token")
            steps.run()
        reviews.declare("token")
    assert steps.run_until_over().outcomes == {"ok": 3}
    check_paid_once(reviews)


def test_a_lost_job_of_a_vendor_without_recovery_holds_no_slot(steps):
    steps.reviews.declare("none", open_jobs=1)
    steps.reviews.vendor.lose = {1}
    steps.run()
    assert steps.run_until_over(["another"], NEXT).outcomes == {"ok": 1}


@pytest.mark.parametrize("recovery", all_but("none", "list", "token"))
def test_a_job_that_another_run_is_submitting_holds_a_slot(steps, recovery):
    reviews, seen = steps.reviews, []

    async def run_another(request, parts):
        if request.method == "POST" and not seen:
            seen.append(None)
            seen[0] = await asyncio.to_thread(steps.run, ["another"], NEXT)

    reviews.declare(recovery, open_jobs=1)
    reviews.vendor.odd = run_another
    steps.run()
    assert "1 key is not submitted yet" in seen[0].sentence
    assert len(reviews.vendor.submits) == len(TEXTS)


def test_a_job_refused_for_now_is_submitted_again(steps):
    steps.reviews.declare(retries=0)
    steps.reviews.vendor.end, steps.reviews.vendor.looks = "full", 0
    assert steps.run().sentence
    assert steps.run().sentence
    steps.reviews.vendor.end = "completed"
    assert steps.run_until_over().outcomes == {"ok": 3}
    assert steps.reviews.bill == steps.reviews.vendor.invoice
    assert set(steps.reviews.vendor.submits.values()) == {3}


def test_a_refused_job_uses_no_retry(steps):
    steps.reviews.declare(retries=0)
    steps.reviews.vendor.end = "rejected"
    with pytest.raises(DeclarationError, match="line 1 is no item"):
        steps.run_until_over()
    steps.reviews.vendor.end = "completed"
    assert steps.run_until_over().outcomes == {"ok": 3}


# -- looks -----------------------------------------------------------------------------------------
def test_a_waiting_day_names_no_past_time(steps):
    steps.reviews.declare(give_up=HOUR, cancels=False)
    steps.reviews.vendor.looks = 99
    for hours in (0, 0.5, 1, 1.5):  # steps begin at 22:13
        steps.now = Steps.now + hours * HOUR
        assert "until 2023-11-15 00:13 UTC at the latest" in steps.run().sentence
    steps.now = Steps.now + 2 * HOUR
    assert not steps.run().sentence


def test_a_job_that_is_being_cancelled_still_gives_its_results(steps):
    async def cancel_later(request, parts):
        if parts[-1] != "cancel":
            return None
        job = reviews.vendor.jobs[parts[1]]
        if job.end != "cancelled":
            job.looks, job.end = 2, "cancelled"
        return web.json_response({})

    reviews = steps.reviews
    reviews.declare(give_up=HOUR)
    reviews.vendor.looks, reviews.vendor.odd = 99, cancel_later
    steps.run()
    steps.now += HOUR
    assert steps.run_until_over().outcomes == {"ok": 3}
    check_paid_once(reviews)


@pytest.mark.parametrize(
    ("status", "path", "words"),
    [
        (404, "job-1", "404 Not Found"),
        *(
            pytest.param(*case, marks=pytest.mark.proof)
            for case in (
                (409, "cancel", "was not over after 1 h"),
                (404, "results", "404 Not Found"),
                (410, "job-1", "410 Gone"),
            )
        ),
    ],
)
def test_a_job_that_the_vendor_lost_ends_as_an_error(steps, status, path, words):
    steps.reviews.declare(give_up=HOUR)
    steps.reviews.vendor.looks = 999 if path == "cancel" else 0
    steps.reviews.vendor.odd = refuse(status, only=path)
    steps.run()
    assert steps.run().sentence
    steps.now += 2 * HOUR
    step = steps.run_until_over()
    assert step.outcomes == {"error": 3}
    assert words in step.words


FAILED_LINE = len('{"id": "' + 22 * "x" + '", "error": "cannot read text 2", "final": false}\n')
LINE = len('{"id": "' + 22 * "x" + '", "answer": {"label": "label of text 1"}}\n')


@pytest.mark.parametrize("size", all_but(LINE, 0, 20, LINE - 1, 2 * LINE))
def test_results_cut_by_the_connection_are_read_again(steps, size):
    reviews = steps.reviews
    reviews.vendor.cut_after = [size]
    assert steps.run_until_over().outcomes == {"ok": 3}
    check_paid_once(reviews)
    assert {job.done["missing"] for job in reviews.files.jobs()} == {0}


@pytest.mark.parametrize("size", all_but(LINE, 0, 2 * LINE))
def test_results_cut_twice_at_the_same_place_are_waited_for(steps, size):
    reviews = steps.reviews
    reviews.vendor.cut_after = 3 * [size]
    assert steps.run_until_over().outcomes == {"ok": 3}
    check_paid_once(reviews)
    assert {job.done["doubled"] for job in reviews.files.jobs()} == {0}


def test_items_still_missing_from_cut_results_are_errors_and_billed(steps):
    reviews = steps.reviews
    reviews.declare(give_up=HOUR)
    reviews.vendor.cut_after = 9 * [LINE]
    for _ in range(3):
        step = steps.run()
    assert "2 items of 3 are missing from its results" in step.sentence
    steps.now += 2 * HOUR
    step = steps.run_until_over()
    assert step.outcomes == {"ok": 1, "error": 2}
    words = [answer for answer in step.answers["response"].to_pylist() if "give_up" in answer]
    assert len(words) == 2
    assert "did not give all its results within 1 h (give_up): 2 items of 3 are" in words[0]
    check_paid_once(reviews)


def test_a_failed_item_is_sent_again_although_other_results_stay_missing(steps):
    reviews, vendor = steps.reviews, steps.reviews.vendor
    reviews.declare(give_up=HOUR)
    vendor.fails["text 2"] = 1
    vendor.mangle = lambda lines: sorted(lines, key=lambda line: "answer" in line)
    vendor.cut_after = 9 * [FAILED_LINE]
    for _ in range(3):
        steps.run()
    steps.now += 2 * HOUR
    steps.run()
    vendor.cut_after.clear()
    assert steps.run_until_over().outcomes == {"ok": 1, "error": 2}


def test_answers_are_kept_while_the_day_waits_for_others(steps):
    steps.reviews.declare(max_items=1, open_jobs=1, give_up=HOUR, ttl="Ttl(ok=timedelta(hours=1))")
    assert steps.run_until_over(pause=HOUR / 2).outcomes == {"ok": 3}
    check_paid_once(steps.reviews)


def test_a_waiting_day_keeps_its_misses_and_the_next_day_submits_them_again(steps):
    reviews, vendor = steps.reviews, steps.reviews.vendor
    reviews.declare(max_items=2, give_up=26 * HOUR, ttl="Ttl(miss=timedelta(hours=1))")
    vendor.misses, vendor.looks = {"text 1"}, 5
    steps.run()
    vendor.jobs["job-1"].looks = 0
    step = steps.run_until_over(pause=6 * HOUR)
    assert step.outcomes == {"ok": 2, "miss": 1}
    assert steps.now >= 1_700_000_000 + 24 * HOUR
    check_paid_once(reviews)
    assert steps.run_until_over(day=NEXT, pause=6 * HOUR).outcomes == {"ok": 2, "miss": 1}
    assert vendor.submits == {"text 1": 2, "text 2": 1, "text 3": 1}


# -- bills -----------------------------------------------------------------------------------------
def test_a_price_without_a_maximum_per_job_is_refused(steps):
    lookup = steps.reviews.lookup
    service = replace(lookup.service, prices=[Price("1 USD", per="1000 output_tokens")])
    with pytest.raises(DeclarationError, match=r"how many output_tokens .* at_most=2_000"):
        replace(lookup, service=service)


@pytest.mark.parametrize(("billed", "units"), [(None, 21), (0, 0), (5, 5)])
def test_units_that_the_class_never_bills_count_at_their_maximum(steps, caplog, billed, units):
    steps.reviews.declare(prices='Price("1 USD", per="token", at_most=7)')
    vendor = steps.reviews.lookup.function
    read = vendor.results

    async def results(self, job, http):
        if billed is not None:
            http.bill(tokens=billed)
        async for pair in read(self, job, http):
            yield pair

    vendor.results = results
    assert steps.run_until_over().outcomes == {"ok": 3}
    (job,) = steps.reviews.files.jobs()
    assert job.done["units"] == {"token": units}
    assert ("did not bill token (http.bill)" in caplog.text) == (billed is None)


def test_an_item_whose_key_is_erased_while_its_job_is_open_is_billed(steps):
    steps.run()
    files = steps.reviews.files
    forget(files.folder, ['["text 3"]'])
    steps.texts = TEXTS[:2]
    assert steps.run_until_over().outcomes == {"ok": 2}
    check_paid_once(steps.reviews)
    done = {job.done["erased"]: job.done for job in files.jobs()}
    assert (done[1]["items"], done[1]["unknown_ids"]) == (len(TEXTS), 0)


def test_the_record_has_the_jobs_of_a_run_that_stopped(steps):
    async def second_is_refused(request, _):
        if request.method == "POST" and len(vendor.jobs) == 1:
            return web.json_response({}, status=400)
        return None

    reviews, vendor = steps.reviews, steps.reviews.vendor
    reviews.declare(max_items=2)
    vendor.odd = second_is_refused
    with pytest.raises(DeclarationError, match="refused a job of 1 item"):
        steps.run()
    vendor.odd = None
    steps.now += 60
    done = steps.run_until_over().waits.done["labels"]
    assert sum(job["billed"] for job in done) == 3
    check_paid_once(reviews)


def test_a_refused_job_is_listed(steps):
    steps.reviews.vendor.end = "rejected"
    steps.run()
    with pytest.raises(DeclarationError, match="line 1 is no item"):
        steps.run_until_over()
    (job,) = (found.facts() for found in find_jobs("declared"))
    assert (job.state, job.billed, job.cost) == ("refused: line 1 is no item", 0, None)


def test_a_ledger_with_two_spellings_is_counted_once(steps):
    steps.run_until_over()
    lookups = [SimpleNamespace(name="labels", kind="jobs", service="vendor", prices=())]
    found = {}
    for path in ("data/ledger", "./data/ledger"):
        found |= costs._with_jobs("reviews", path, lookups)
    (((enrichment, ledger, _), lookup),) = found.items()
    charges = costs._charges_of_jobs(enrichment, ledger, lookup)
    assert [charge.billed.cost for charge in charges] == [f"{steps.reviews.bill:f}"]


def test_an_item_that_failed_is_not_sent_again_while_its_error_holds(steps):
    vendor = steps.reviews.vendor
    steps.reviews.declare(retries=1, ttl="Ttl(error=timedelta(days=2))")
    vendor.mangle = lambda lines: [
        {"id": line["id"], "error": "expired", "final": False} for line in lines
    ]
    assert steps.run_until_over().outcomes == {"timeout": len(steps.texts)}
    sent = dict(vendor.submits)
    steps.now += 24 * HOUR
    assert steps.run(day="2013-01-11").outcomes == {"timeout": len(steps.texts)}
    assert vendor.submits == sent
