"""Jobs in doubt, of other days, or out of reach: found by a reader who looked for second payments."""

import pytest

DAY, NEXT = "2013-01-10", "2013-01-11"
TEXTS = ["text 1", "text 2", "text 3"]
OK = {text: ("ok", f"label of {text}") for text in TEXTS}


@pytest.mark.parametrize("refused_by", ["the vendor", "the network"])
def test_a_job_in_doubt_stays_in_doubt_while_its_recovery_is_refused(
    reviews, monkeypatch, refused_by
):
    reviews.declare("token")
    reviews.write_input(DAY, TEXTS)
    reviews.vendor.lose = {1}  # it takes the job, and its answer is lost
    reviews.run(DAY)
    if refused_by == "the vendor":
        reviews.vendor.refuse = 429
        reviews.run(DAY)
        reviews.vendor.refuse = None
    else:
        with monkeypatch.context() as patch:
            patch.setenv("VENDOR_URL", "http://127.0.0.1:9")
            reviews.declare("token")
            reviews.run(DAY)
        reviews.declare("token")
    assert reviews.run_until_over(DAY) == 0
    assert reviews.rows() == OK
    assert reviews.vendor.submits == dict.fromkeys(TEXTS, 1)
    assert reviews.bill == reviews.vendor.invoice


def test_a_lost_job_of_a_vendor_without_recovery_holds_no_slot(reviews):
    reviews.declare("none", open_jobs=1)
    reviews.write_input(DAY, TEXTS)
    reviews.vendor.lose = {1}
    reviews.run(DAY)
    reviews.write_input(NEXT, ["another"])
    assert reviews.run_until_over(NEXT) == 0
    assert reviews.rows(NEXT) == {"another": ("ok", "label of another")}


def test_a_refused_job_uses_up_no_retry(reviews):
    reviews.declare(retries=0)
    reviews.write_input(DAY, TEXTS)
    reviews.vendor.end = "rejected"
    assert reviews.run_until_over(DAY) == 2
    reviews.vendor.end = "completed"
    assert reviews.run_until_over(DAY) == 0
    assert reviews.rows() == OK
