"""Results that name items twice or by other ids, or come packed: nothing is paid twice or lost."""

import gzip
import json

import pytest
from aiohttp import web

from jobs.errors import TidegateError
from tests.support.job_steps import Steps

TEXTS = ["text 1", "text 2", "text 3"]


@pytest.fixture
def steps(reviews):
    return Steps(reviews, TEXTS)


def check_answered_and_paid_once(steps):
    reviews = steps.reviews
    assert steps.run_until_over().outcomes == {"ok": 3}
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
def test_an_answer_counts_beside_failures_of_its_item(steps, final):
    def mangle(lines):
        failures = [{"id": line["id"], "error": "expired", "final": final} for line in lines]
        return [*failures, *lines, *failures]

    steps.reviews.vendor.mangle = mangle
    check_answered_and_paid_once(steps)
    (job,) = steps.reviews.files.jobs()
    assert (job.done["answered"], job.done["failed"], job.done["doubled"]) == (3, 0, 6)


def test_results_under_ids_of_no_item_are_not_paid_again(steps):
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


@pytest.mark.parametrize(
    ("change", "headers"),
    [
        (gzip.compress, {"Content-Encoding": "gzip"}),
        (lambda text: gzip.compress(text[:80]) + gzip.compress(text[80:]), {"Content-Encoding": "x-gzip"}),
        (lambda text: b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n\r\n"), {}),
    ],
)  # fmt: skip
def test_packed_and_marked_results_are_read(steps, change, headers):
    vendor = steps.reviews.vendor
    vendor.label = "{}\u2028\x85 of a text".format
    vendor.odd = send(Body(vendor, change), **headers)
    check_answered_and_paid_once(steps)


def test_packed_results_without_their_end_are_read_again(steps):
    vendor = steps.reviews.vendor
    cuts = [-1, -9, -30]
    cut = send(
        Body(vendor, lambda text: gzip.compress(text)[: cuts.pop() if cuts else None]),
        **{"Content-Encoding": "gzip"},
    )
    vendor.odd = cut
    check_answered_and_paid_once(steps)
    assert not cuts
