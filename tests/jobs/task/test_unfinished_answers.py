"""Answers, connections and functions that do not end: the run does, within its limits, with each
row once.
"""

import random
import socket
import ssl
import threading
import time
from contextvars import copy_context

import pytest

from jobs.clients import request_counter
from jobs.task.runner import PartitionRun
from tests.jobs.task.test_runner import batches, plan
from tests.support.authority import Authority
from tests.support.unfinished_service import ENDINGS, UnfinishedService
from tidegate import HttpLookup, Outage, Retry, Service

ATTEMPT = 0.25  # s
AFTER = 5.0  # s for which a run may go on after its last row
UNDER_LOAD = 20.0  # s more for a busy machine; what hangs, hangs for ever


def asked(url, *, ca=None, **fields):
    standard = {
        "name": "first",
        "service": Service(name="shop", url=url, max_concurrency=16, ca=ca, outage=Outage(after=1_000_000)),
        "request": "GET /v/{k}", "keys": {"k": "k"}, "returns": "first_x BIGINT",
        "timeout": 4 * ATTEMPT, "attempt_timeout": ATTEMPT,
        "retry": Retry(retries=1, initial_delay=0.001), "max_answer_bytes": 100_000,
    }  # fmt: skip
    return HttpLookup(**standard | fields)


def ended(lookup, rows, *, share=16):
    """The rows of a partition; fails where it has not ended after its limits and AFTER."""
    out, failed = [], []

    def work():
        try:
            for found in PartitionRun(plan(lookup, share=share), 0, 0).run(iter(batches(rows))):
                out.extend(found.to_pylist())
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    request_counter.begin()
    thread = threading.Thread(target=copy_context().run, args=(work,), daemon=True)
    began = time.monotonic()
    thread.start()
    limit = lookup.timeout * (1 + rows / share)
    thread.join(limit + AFTER + UNDER_LOAD)
    assert not thread.is_alive(), (
        f"after {time.monotonic() - began:.1f} s: {len(out)} of {rows} rows"
    )
    for error in failed:
        raise error
    return out


def judge(out, rows, service):
    """Each row once, and right, unless its answer is known to be in doubt."""
    in_doubt = request_counter.counted()["first"].in_doubt
    assert sorted(row["k"] for row in out) == list(range(rows))
    wrong = [row["k"] for row in out if row["first_status"] == "ok" and row["first_x"] != row["k"]]
    assert in_doubt or not wrong
    assert {row["first_status"] for row in out} <= {"ok", "error", "timeout"}
    assert set(service.asked) >= {row["k"] for row in out if row["first_status"] == "ok"}


def mixed(seed, count):
    """So many rows: every second has an ending, the others a whole answer, often on its
    connection.
    """
    draw = random.Random(seed)
    endings = draw.sample(ENDINGS, count)
    return lambda key: None if key % 2 else endings[key // 2]


@pytest.mark.process
@pytest.mark.parametrize(
    ("seed", "count"),
    [
        (0, 150),
        *(pytest.param(seed, len(ENDINGS), marks=pytest.mark.proof) for seed in range(1, 11)),
    ],
)
def test_a_run_ends_whatever_way_an_answer_does_not_end(seed, count):
    with UnfinishedService(mixed(seed, count), seed=seed) as service:
        out = ended(asked(service.url), 2 * count, share=64)
    judge(out, 2 * count, service)


@pytest.mark.process
@pytest.mark.parametrize(
    ("seed", "count"),
    [(0, 60), *(pytest.param(seed, len(ENDINGS), marks=pytest.mark.proof) for seed in range(1, 4))],
)
def test_a_run_ends_whatever_way_a_tls_answer_does_not_end(tmp_path, seed, count):
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.certificate("server"))
    with UnfinishedService(mixed(seed, count), tls=context, seed=seed) as service:
        out = ended(asked(service.url, ca=authority.ca), 2 * count, share=64)
    judge(out, 2 * count, service)


SILENT = (
    ("length", "nothing", "silence"), ("length", "in the head", "silence"),
    ("length", "in the body", "silence"), ("chunks", "in the body", "silence"),
    ("gzip", "in the body", "silence"), ("close", "whole", "silence"),
    ("length", "whole", "empty lines for ever"), ("chunks", "in the body", "a chunk of no size"),
    ("interim", "nothing", "interim for ever"), ("length", "in the body", "drip for ever"),
)  # fmt: skip


@pytest.mark.process
@pytest.mark.proof
@pytest.mark.parametrize("ending", SILENT)
def test_a_single_endless_answer_does_not_block_a_run(ending):
    with UnfinishedService(lambda key: ending if key == 5 else None) as service:
        out = ended(asked(service.url), 8, share=1)
    judge(out, 8, service)


@pytest.mark.process
def test_a_service_that_accepts_no_connection_does_not_block_a_run():
    """The system completes some connections that nobody accepts, and then answers no
    further one.
    """
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        out = ended(asked(f"http://127.0.0.1:{listening.getsockname()[1]}"), 6, share=6)
    assert {row["first_status"] for row in out} <= {"error", "timeout"}
    assert sorted(row["k"] for row in out) == list(range(6))


@pytest.mark.process
def test_an_unanswered_tls_handshake_does_not_block_a_run():
    with UnfinishedService() as service:
        out = ended(asked(service.url.replace("http", "https")), 6, share=6)
    assert {row["first_status"] for row in out} <= {"error", "timeout"}
