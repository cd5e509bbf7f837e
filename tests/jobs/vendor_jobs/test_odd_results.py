"""Results that name items twice or by other ids, or come packed: nothing is paid twice or lost."""

import bz2
import gzip
import json
import zlib

import pyarrow as pa
import pytest
from aiohttp import web

from jobs.errors import TidegateError
from jobs.ledger.changes.erasure import forget
from jobs.run.keys.vendor_jobs.job_items import item_id
from tests.support.job_steps import Steps

HOUR = 3600.0
TEXTS = ["text 1", "text 2", "text 3"]


@pytest.fixture
def steps(reviews):
    return Steps(reviews, TEXTS)


def check_answered_and_paid_once(steps, items=3):
    reviews = steps.reviews
    assert steps.run_until_over().outcomes == {"ok": items}
    assert set(reviews.vendor.submits.values()) == {1}
    assert reviews.bill == reviews.vendor.invoice


def send(body, **headers):
    """Gives results as these bytes of their lines."""

    async def answer(request, parts):
        if parts[2:] != ["results"]:
            return None
        lines = body.lines(parts[1])
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        return web.Response(body=body.change(text.encode()), headers=headers)

    return answer


class Body:
    def __init__(self, vendor, change):
        self.lines, self.change = lambda job: vendor.jobs[job].results, change


@pytest.mark.parametrize("final", [False, True])
def test_an_answer_counts_although_its_item_also_failed(steps, final):
    def mangle(lines):
        failures = [{"id": line["id"], "error": "expired", "final": final} for line in lines]
        return [*failures, *lines, *failures]

    steps.reviews.vendor.mangle = mangle
    check_answered_and_paid_once(steps)
    (job,) = steps.reviews.files.jobs()
    assert (job.done["answered"], job.done["failed"], job.done["doubled"]) == (3, 0, 6)


def test_results_with_unknown_ids_are_not_paid_again(steps):
    vendor = steps.reviews.vendor
    vendor.mangle = lambda lines: [
        line | {"id": f"request-{place}"} for place, line in enumerate(lines)
    ]
    vendor.looks = 0
    steps.run()
    for _ in range(2):
        with pytest.raises(TidegateError, match="gave 3 ids, and none is the id of an item"):
            steps.run()
    vendor.mangle = lambda lines: lines  # as a corrected class reads them
    check_answered_and_paid_once(steps)


def test_results_of_erased_items_are_not_reported_as_an_error_of_the_class(steps):
    vendor = steps.reviews.vendor
    vendor.mangle = lambda lines: [line for line in lines if line["id"] != left_out] * 2
    vendor.looks = 0
    steps.run()
    left_out = item_id('["text 1"]')
    forget(steps.reviews.files.folder, [f'["{text}"]' for text in TEXTS[1:]])
    steps.texts = TEXTS[:1]
    assert steps.run().sentence  # it waits
    vendor.mangle = lambda lines: lines
    check_answered_and_paid_once(steps, items=1)


@pytest.mark.parametrize(
    ("change", "headers"),
    [
        (gzip.compress, {"Content-Encoding": "gzip"}),
        (lambda text: gzip.compress(text[:80]) + gzip.compress(text[80:]), {"Content-Encoding": "x-gzip"}),
        (lambda text: gzip.compress(text) + bytes(20), {"Content-Encoding": "gzip"}),
        (lambda text: pa.compress(text, "brotli", asbytes=True), {"Content-Encoding": "br"}),
        (lambda text: pa.compress(text, "zstd", asbytes=True), {"Content-Encoding": "ZSTD"}),
        (zlib.compress, {"Content-Encoding": "deflate"}),
        (lambda text: zlib.compress(text, wbits=-15), {"Content-Encoding": "Deflate"}),
        (bytes, {"Content-Encoding": "none"}),
        (lambda text: b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n\r\n"), {}),
    ],
)  # fmt: skip
def test_compressed_results_and_results_with_a_byte_order_mark_are_read(steps, change, headers):
    vendor = steps.reviews.vendor
    vendor.label = "{}\u2028\x85 of a text".format
    vendor.odd = send(Body(vendor, change), **headers)
    check_answered_and_paid_once(steps)


@pytest.mark.parametrize(("pack", "coding"), [(gzip.compress, "gzip"), (zlib.compress, "deflate")])
def test_truncated_compressed_results_are_read_again(steps, pack, coding):
    vendor = steps.reviews.vendor
    cuts = [-1, -9, -30]
    cut = send(
        Body(vendor, lambda text: pack(text)[: cuts.pop() if cuts else None]),
        **{"Content-Encoding": coding},
    )
    vendor.odd = cut
    check_answered_and_paid_once(steps)
    assert not cuts


@pytest.mark.parametrize(
    ("coding", "message"),
    [
        ("compress", "has the Content-Encoding 'compress', and was requested without any"),
        ("deflate", "the answer cannot be decoded: it is not in its Content-Encoding, 'deflate'"),
    ],
)
def test_undecodable_results_are_kept_beyond_give_up(steps, coding, message):
    vendor = steps.reviews.vendor
    vendor.odd = send(Body(vendor, bz2.compress), **{"Content-Encoding": coding})
    for _ in range(3):
        sentence = steps.run().sentence
    assert message in sentence
    steps.now += 2.5 * HOUR  # give_up, and the hour of grace
    with pytest.raises(TidegateError, match=r"`tidegate jobs forget \w+` lets go of its results"):
        steps.run()
    vendor.odd = None
    check_answered_and_paid_once(steps)


@pytest.mark.parametrize("given_up", [False, True])
@pytest.mark.parametrize(("items", "missing"), [(1, "1 item of 1 is"), (3, "3 items of 3 are")])
def test_results_of_a_completed_job_without_any_known_item_are_read_again(
    reviews, items, missing, given_up
):
    steps, vendor = Steps(reviews, TEXTS[:items]), reviews.vendor
    vendor.mangle = lambda _: []
    for _ in range(3):
        sentence = steps.run().sentence
    assert f"{missing} missing from its results" in sentence
    if given_up:
        steps.now += 2.5 * HOUR
        assert steps.run().outcomes == {"error": items}
        assert set(vendor.submits.values()) == {1}
        return
    vendor.mangle = lambda lines: lines
    check_answered_and_paid_once(steps, items)
