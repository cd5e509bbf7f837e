"""A service that sends a response too many: no row has another key's answer unnoticed, and the
ledger keeps none.
"""

import asyncio
import dataclasses
import gc
import itertools
import json
import random
import re
import time

import pytest

from jobs.clients import request_counter
from jobs.clients.http.token_headers import _TOKENS
from jobs.declare.ledger_settings import FOR_EVER, Ttl
from jobs.errors import DeclarationError, TidegateError
from jobs.ledger.answers import as_answers
from jobs.ledger.index import write_index
from jobs.ledger.keys import key_text
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.selection import select
from jobs.ledger.store import LedgerFolder
from jobs.task.output_files import without_doubt
from jobs.task.runner import PartitionRun, run_partition
from tests.jobs.task.test_runner import batches, collected, plan
from tests.support.disorderly_service import (
    DROPPED,
    FAULTS,
    GREETING,
    HARMLESS,
    SHIFTING,
    DisorderlyService,
    response,
)
from tests.support.places import everywhere, place_of
from tidegate import Batch, Env, HttpLookup, OAuth2ClientCredentials, Pages, Retry, Service

pytestmark = pytest.mark.process

MODES = ("ordered", "unordered", "key_ordered")
WITH_BODY = {"request": "POST /v/{k}", "body": {"text": "x"}}
LIMIT = 0.3  # s, where calls are cancelled


def value(path, body):
    return {"first_x": int(path.rsplit("/", 1)[1]), "k": path.rsplit("/", 1)[1]}


def asked(url, **fields):
    standard = {
        "name": "first", "service": Service(name="shop", url=url, max_concurrency=8),
        "request": "GET /v/{k}", "keys": {"k": "k"}, "returns": "first_x BIGINT", "timeout": 20.0,
        "retry": Retry(retries=4, initial_delay=0.001),
    }  # fmt: skip
    return HttpLookup(**standard | fields)


@pytest.fixture
def folder(request, tmp_path):
    return LedgerFolder(f"{place_of(request, str(tmp_path))}/ledger", "first", "f" * 16)


def run(folder, lookup, rows, *, run_id, mode="unordered", share=8):
    """The rows of a partition that begins with what the ledger knows; how many of its answers are
    in doubt.
    """
    known = answers(folder, rows)
    ledger = LedgerPlan(folder.root, folder.lookup, folder.fingerprint, run_id, Ttl(), 200, 0.05)
    if known.num_rows:
        path = f"{folder.root}-{run_id}.arrow"
        write_index(path, known)
        ledger = dataclasses.replace(ledger, index=path)
    options = {"order_key": ("k",)} if mode == "key_ordered" else {}
    planned = plan(lookup, mode=mode, share=share, **options)
    request_counter.begin()
    out = collected(dataclasses.replace(planned, ledgers=(ledger,)), batches(rows))
    return out.to_pylist(), request_counter.counted()["first"].in_doubt


def answers(folder, rows):
    import pyarrow as pa

    wanted = pa.chunked_array([pa.array([key_text((key,)) for key in range(rows)])])
    return select(folder, wanted, now_us=time.time_ns() // 1000, ttl=FOR_EVER).answers


def wrong_in(folder, rows):
    """Keys of which the ledger gives another key's answer."""
    found = as_answers(answers(folder, rows))
    return [
        answer.key
        for answer in found
        if answer.response and json.loads(answer.response)["first_x"] != json.loads(answer.key)[0]
    ]


def wrong(rows):
    return [
        row["k"]
        for row in rows
        if row["first_status"] in ("ok", "miss") and row["first_x"] != row["k"]
    ]


def once(fault, at):
    """That fault at one request of each connection."""
    return lambda number: fault if number == at else None


@everywhere("folder", on_store=pytest.mark.proof)
@pytest.mark.parametrize("fault", SHIFTING)
def test_answers_of_a_connection_with_an_extra_response_are_in_doubt_and_called_again(
    folder, fault
):
    lookup = WITH_BODY if fault == "early, body unread" else {}
    with DisorderlyService(value, fault=once(fault, 5)) as service:
        rows, in_doubt = run(folder, asked(service.url, **lookup), 60, run_id="r1")
    assert fault in service.done
    assert in_doubt > 0
    assert wrong_in(folder, 60) == []
    with DisorderlyService(value) as service:
        rows, in_doubt = run(folder, asked(service.url, **lookup), 60, run_id="r2")
    assert in_doubt == 0
    assert [row["first_status"] for row in rows] == ["ok"] * 60
    assert wrong(rows) == []


@pytest.mark.parametrize("fault", [*HARMLESS, *DROPPED])
def test_extra_bytes_that_shift_no_answer_put_none_in_doubt(folder, fault):
    lookup = WITH_BODY if fault == "early" else {}
    with DisorderlyService(value, fault=once(fault, 5)) as service:
        rows, in_doubt = run(folder, asked(service.url, **lookup), 60, run_id="r1")
    assert fault in service.done
    assert in_doubt == 0
    assert [row["first_status"] for row in rows] == ["ok"] * 60
    assert wrong(rows) == []


def test_a_connection_abandoned_after_an_interim_response_is_judged_and_closed(folder):
    """100 Continue, sent behind an answer, comes when the next request is out: the last that was
    read has no body.
    """
    with DisorderlyService(
        value,
        fault=once("100 after", 1),
        slow=lambda path: 0.0 if path.endswith("/0") else 3 * LIMIT,
    ) as service:
        lookup = asked(service.url, timeout=LIMIT)
        rows, _ = run(folder, lookup, 2, run_id="r1", mode="ordered", share=1)
        gc.collect()  # an open connection that nobody holds is a warning of aiohttp's
    assert [row["first_status"] for row in rows] == ["ok", "timeout"]


def test_an_answer_that_comes_before_any_request_is_dropped(folder):
    connections = itertools.count()  # only the first ones are greeted: else there is none to be had
    greeted = lambda number: GREETING if number == 0 and next(connections) < 4 else None  # noqa: E731
    with DisorderlyService(value, fault=greeted) as service:
        rows, in_doubt = run(folder, asked(service.url), 60, run_id="r1")
    assert GREETING in service.done
    # that the first request had left by then cannot be ruled out
    assert in_doubt or not wrong(rows)
    assert wrong_in(folder, 60) == []


ECHO = {"echo": {"k": "$.k"}}


def test_an_answer_that_echoes_another_key_is_an_error_and_called_on_a_new_connection(folder):
    with DisorderlyService(value, fault=once("a second one", 5)) as service:
        rows, in_doubt = run(folder, asked(service.url, **ECHO), 60, run_id="r1")
    assert in_doubt == 0  # every answer has named its key
    assert [row["first_status"] for row in rows] == ["ok"] * 60
    assert wrong(rows) == wrong_in(folder, 60) == []
    errors = request_counter.counted()["first"]
    assert errors.sent.total() > 60  # those that named another one were asked again


def test_a_miss_without_an_echoed_key_is_in_doubt(folder):
    def some(path, body):
        return value(path, body) if int(path.rsplit("/", 1)[1]) % 3 else {"nothing": True}

    declared = {"miss_when": ("$.nothing == true",), **ECHO}
    with DisorderlyService(some, fault=once("a second one", 5)) as service:
        rows, in_doubt = run(folder, asked(service.url, **declared), 60, run_id="r1")
    assert wrong(row for row in rows if row["first_status"] == "ok") == []
    misses = [row["k"] for row in rows if row["first_status"] == "miss" and row["k"] % 3]
    assert in_doubt or not misses
    stored = {answer.key for answer in as_answers(answers(folder, 60)) if answer.outcome == "miss"}
    assert not stored & {key_text((key,)) for key in range(60) if key % 3}


def test_an_added_echo_keeps_stored_answers():
    from jobs.declare.values.fingerprint import fingerprint
    from jobs.ledger.declared_folder import request_fingerprint

    plain, named = asked("http://x"), asked("http://x", **ECHO)
    assert request_fingerprint(plain) == request_fingerprint(named) == "681de3263cbcbb7c"
    # it is seen that the declaration changed
    assert fingerprint(plain) == "fbf2bdd9ee410dee" != fingerprint(named)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"echo": {"customer": "$.k"}}, "echo: 'customer' is not a key; the keys are k."),
        ({"echo": {"k": "$..k"}}, "echo: k: '$..k' may match several values; name one."),
        (
            {"echo": {"k": "$.k"}, "request": "POST /v", "batch": Batch(
                max_items=5, max_wait=0.1, item={"k": "{k}"}, body={"of": "{items}"},
                answers="$.of",
            )},
            "echo: the answers of a batch are matched by batch.match; declare that.",
        ),
    ],
)  # fmt: skip
def test_a_wrong_echo_is_refused(declared, message):
    with pytest.raises(DeclarationError, match=re.escape(message)):
        asked("http://x", **declared)


def in_a_batch(path, body):
    return {"of": [{"k": load["k"], "first_x": load["k"]} for load in json.loads(body)["of"]]}


BATCH = {
    "request": "POST /batch", "miss_when": (), "paths": {"first_x": "$.first_x"},
    "batch": Batch(max_items=5, max_wait=0.01, item={"k": "{k}"}, body={"of": "{items}"}, answers="$.of"),
}  # fmt: skip
BATCH_BY_KEY = BATCH | {"batch": dataclasses.replace(BATCH["batch"], match="$.k")}


@pytest.mark.parametrize(("declared", "doubts"), [(BATCH, True), (BATCH_BY_KEY, False)])
def test_a_shifted_batch_is_in_doubt_unless_its_answers_are_matched_by_key(
    folder, declared, doubts
):
    with DisorderlyService(in_a_batch, fault=once("a second one", 3)) as service:
        rows, in_doubt = run(folder, asked(service.url, **declared), 200, run_id="r1", share=4)
    assert bool(in_doubt) == doubts
    assert in_doubt or wrong(rows) == []
    assert wrong_in(folder, 200) == []
    with DisorderlyService(in_a_batch) as service:
        rows, in_doubt = run(folder, asked(service.url, **declared), 200, run_id="r2", share=4)
    assert [row["first_status"] for row in rows] == ["ok"] * 200
    assert wrong(rows) == []


def in_pages(path, body):
    key, _, page = path.rsplit("/", 1)[1].partition("?page=")
    found = {"items": [{"x": int(key)}], "first_x": int(key)}
    return found if page else {**found, "next": f"/v/{key}?page=2"}


PAGES = {
    "pages": Pages(next="$.next", items="$.items", max_pages=5),
    "returns": "first_x BIGINT, second BIGINT",
    "paths": {"first_x": "$.items[0].x", "second": "$.items[1].x"},
}  # fmt: skip


def test_pages_on_a_shifted_connection_are_in_doubt(folder):
    with DisorderlyService(in_pages, fault=once("a second one", 5)) as service:
        rows, in_doubt = run(folder, asked(service.url, **PAGES), 60, run_id="r1")
    assert in_doubt
    assert wrong_in(folder, 60) == []
    with DisorderlyService(in_pages) as service:
        rows, in_doubt = run(folder, asked(service.url, **PAGES), 60, run_id="r2")
    assert not in_doubt
    assert [row["first_status"] for row in rows] == ["ok"] * 60
    assert all(row["first_x"] == row["second"] == row["k"] for row in rows)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("answer", "declared", "rows"),
    [(in_a_batch, BATCH, 1000), (in_a_batch, BATCH_BY_KEY, 1000), (in_pages, PAGES, 300)],
)
def test_30_random_faults_in_batches_and_pages_publish_no_wrong_answer_unnoticed(
    tmp_path, answer, declared, rows
):
    for seed in range(30):
        folder = LedgerFolder(str(tmp_path / str(seed)), "first", "f" * 16)
        with DisorderlyService(answer, fault=mixture(seed), seed=seed) as service:
            written, in_doubt = run(folder, asked(service.url, **declared), rows, run_id="r1")
        assert in_doubt or not wrong(written), seed
        assert wrong_in(folder, rows) == [], seed
        with DisorderlyService(answer) as service:
            written, in_doubt = run(folder, asked(service.url, **declared), rows, run_id="r2")
        assert not in_doubt
        assert {row["first_status"] for row in written} == {"ok"}
        assert wrong(written) == []


@everywhere("folder", on_store=pytest.mark.proof)
def test_a_retried_task_calls_again_for_answers_that_its_dead_attempt_had_in_doubt(folder):
    """An attempt that dies tells nobody, but its marks stand in the ledger."""
    ledger = LedgerPlan(folder.root, folder.lookup, folder.fingerprint, "r1", Ttl(), 200, 0.05)
    with DisorderlyService(value, fault=once("two at once", 5)) as service:
        planned = dataclasses.replace(plan(asked(service.url), share=8), ledgers=(ledger,))
        collected(planned, batches(60))
        doubted = 60 - answers(folder, 60).num_rows
        assert doubted
        service.fault = lambda number: None
        before = len(service.log)
        needs_retry = list(PartitionRun(planned, 0, 1).run(iter(batches(60))))
        assert len(service.log) - before == doubted
    rows = [row for batch in needs_retry for row in batch.to_pylist()]
    assert [row["first_status"] for row in rows] == ["ok"] * 60
    assert wrong(rows) == []


@everywhere("folder", on_store=pytest.mark.proof)
def test_a_call_that_must_not_be_made_twice_is_unknown_once_its_answer_is_in_doubt(folder):
    once_only = {"idempotent": False, "retry": Retry(retries=0)}
    ledger = LedgerPlan(
        folder.root, folder.lookup, folder.fingerprint, "r1", Ttl(), 200, 0.05, idempotent=False
    )
    with DisorderlyService(value, fault=once("a second one", 5)) as service:
        planned = dataclasses.replace(
            plan(asked(service.url, **once_only), share=8), ledgers=(ledger,)
        )
        collected(planned, batches(60))
        before = len(service.log)
        service.fault = lambda number: None
        path = f"{folder.root}.arrow"
        write_index(path, answers(folder, 60))
        ledger = dataclasses.replace(ledger, run_id="r2", index=path)
        rows = collected(dataclasses.replace(planned, ledgers=(ledger,)), batches(60)).to_pylist()
        assert len(service.log) == before
    statuses = {row["first_status"] for row in rows}
    assert "unknown" in statuses
    assert statuses <= {"ok", "unknown", "error"}
    assert wrong(rows) == []


class OneAnswerBehind(DisorderlyService):
    """Sends its first answer twice on its first connection, where it throttles the second call: so
    the third call gets that 429, and then its answer.
    """

    def __init__(self):
        super().__init__(value, fault=lambda number: number if len(self.log) < 3 else None)

    async def _respond(self, fault, content, reader, writer, later):
        if fault == 1:
            self._first = response(content)
        if fault == 3:
            headers = ("Retry-After: 1",)
            writer.write(response({}, status="429 Too Many Requests", headers=headers))
            await asyncio.sleep(0.05)
        writer.write(self._first if fault == 2 else response(content))


def test_a_429_of_another_call_does_not_repeat_a_call_that_must_not_be_repeated(folder):
    ledger = LedgerPlan(
        folder.root, folder.lookup, folder.fingerprint, "r1", Ttl(), 200, 0.05, idempotent=False
    )
    with OneAnswerBehind() as service:
        lookup = asked(service.url, idempotent=False, retry=Retry(retries=0))
        planned = dataclasses.replace(plan(lookup, share=1), ledgers=(ledger,))
        rows = collected(planned, batches(3)).to_pylist()
    assert service.log.count("/v/2") == 1
    assert [row["first_status"] for row in rows if row["k"] == 2] == ["unknown"]


def test_rows_that_no_check_judges_fail_their_task_when_answers_are_in_doubt():
    """As of `enrich(df)` in a program of somebody's own: nobody is told of the requests there."""
    with DisorderlyService(value, fault=once("a second one", 5)) as service:
        planned = plan(asked(service.url), share=8)
        request_counter.begin()
        with pytest.raises(
            TidegateError,
            match=(
                r"^lookup first: \d+ answers are in doubt, as "
                r"their "
            ),
        ):
            list(without_doubt(run_partition(planned, iter(batches(60)))))
        service.fault = lambda number: None
        request_counter.begin()  # the next task
        assert (
            sum(len(rows) for rows in without_doubt(run_partition(planned, iter(batches(60)))))
            == 60
        )


def mixture(seed):
    """Faults at random; more of those that shift, as they are what hurts."""
    draw = random.Random(seed)
    share = draw.choice((0.001, 0.005, 0.02))

    def fault(number):
        if draw.random() >= share:
            return None
        return draw.choice((*FAULTS, *SHIFTING)) if number else GREETING

    return fault


class Tokens:
    """Answers and faults of a token service, which hears one request on each connection. `fine`:
    tokens that it gave on connections with no response too many.
    """

    def __init__(self, seed):
        self._draw = random.Random(f"tokens {seed}")
        self._fault, self._bad, self._given = None, 0, 0
        self.fine = set()

    def fault(self, number):
        if (
            number == 0
            # a connection begins; of three that follow each other one is in order: more tries there
            # are not
        ):
            wants = (
                self._draw.choice((None, *HARMLESS, *DROPPED, *SHIFTING, GREETING))
                if self._bad < 2
                else None
            )
            self._fault = wants
            self._bad = self._bad + 1 if wants in (*SHIFTING, GREETING) else 0
            return wants if wants == GREETING else None
        return self._fault if number == 1 and self._fault != GREETING else None

    def answer(self, path, body):
        self._given += 1
        token = f"token-{self._given}"
        if not self._bad:
            self.fine.add(token)
        return {"access_token": token, "token_type": "Bearer", "expires_in": 0.3}


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(1, 30))]
)
def test_a_token_that_came_with_an_extra_response_is_not_sent(folder, monkeypatch, seed):
    """Both misbehave: the service of the tokens, which are renewed all the time, and the one that
    is asked.
    """
    monkeypatch.setenv("CLIENT", "me")
    monkeypatch.setenv("SECRET", "s3cr3t")
    _TOKENS.clear()
    tokens = Tokens(seed)

    def declared(service, server):
        auth = OAuth2ClientCredentials(
            token_url=f"{server.url}/token", client_id=Env("CLIENT"), client_secret=Env("SECRET")
        )
        limited = Service(name="shop", url=service.url, max_concurrency=8, auth=auth)
        return asked(service.url, service=limited, **(WITH_BODY if seed % 2 else {}))

    with DisorderlyService(tokens.answer, fault=tokens.fault, seed=seed) as server:
        with DisorderlyService(
            value, fault=mixture(seed), seed=seed, slow=lambda path: 0.02
        ) as service:
            written, in_doubt = run(folder, declared(service, server), 500, run_id="r1")
        sent = {
            re.search(rb"Authorization: Bearer (\S+)", head)[1].decode() for head in service.heads
        }
        assert sent <= tokens.fine
        assert len(sent) > 1
        assert set(server.done) & {*SHIFTING, GREETING}
        assert in_doubt or not wrong(written)
        assert wrong_in(folder, 500) == []
        with DisorderlyService(value, slow=lambda path: 0.02) as service:
            written, in_doubt = run(folder, declared(service, server), 500, run_id="r2")
        sent = {
            re.search(rb"Authorization: Bearer (\S+)", head)[1].decode() for head in service.heads
        }
        assert sent <= tokens.fine
    assert in_doubt == 0
    assert {row["first_status"] for row in written} == {"ok"}
    assert wrong(written) == []


@pytest.mark.proof
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cancelled", [False, True])
def test_30_random_faults_publish_no_wrong_answer_unnoticed(tmp_path, mode, cancelled):
    rows, shifted, held_back = 1000, 0, 0
    for seed in range(30):
        folder = LedgerFolder(str(tmp_path / str(seed)), "first", "f" * 16)
        slow = random.Random(seed).sample(range(rows), 8) if cancelled else []
        limits = {"timeout": LIMIT} if cancelled else {}
        with_body = WITH_BODY if seed % 2 else {}
        with DisorderlyService(
            value, fault=mixture(seed), seed=seed,
            slow=lambda path,
            slow=slow: 2.5 * LIMIT if int(path.rsplit("/", 1)[1]) in slow else 0.0,
        ) as service:  # fmt: skip
            written, in_doubt = run(
                folder, asked(service.url, **limits, **with_body), rows, run_id="r1", mode=mode
            )
        assert [row["k"] for row in written if row["first_status"] in ("ok", "miss")], seed
        shifted += bool(wrong(written))
        held_back += bool(in_doubt)
        assert in_doubt or not wrong(written), seed
        assert wrong_in(folder, rows) == [], seed
        with DisorderlyService(value) as service:
            written, in_doubt = run(
                folder, asked(service.url, **with_body), rows, run_id="r2", mode=mode
            )
        assert in_doubt == 0
        assert {row["first_status"] for row in written} == {"ok"}
        assert wrong(written) == []
    assert shifted > 5  # the mixtures do what they are for
    assert held_back < 30  # and not every one is in doubt
