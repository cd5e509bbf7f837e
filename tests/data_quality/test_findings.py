"""The sentences of the checks."""

from honest_day import honest_day

from data_quality.checks.time_limit_held import TimeLimitHeld, Times
from data_quality.findings import in_words
from data_quality.rows.task_rows import Faults


def test_a_sentence_names_the_file_of_a_row_and_not_the_numbers_of_its_task():
    row = {
        "order_id": 7,
        "_partition": 0,
        "_input_seq": 35,
        "_output_seq": 35,
        "_source_file": "s3://lake/raw/a.parquet",
        "unit": "km/h",
        "url": "x.org/",
    }
    assert in_words(row) == "order_id 7, source_file a.parquet, unit km/h, url x.org/"


def test_rows_that_all_timed_out_count_as_rows_with_a_call(tmp_path):
    declared = honest_day(tmp_path).declared
    check = TimeLimitHeld(declared, declared.lookups[0])
    timed_out = Times(Faults(0), 3, None, None, 2001.0)
    assert check.finding([timed_out], None).sentence == "timeouts after 2.001 s or more"
    unasked = Times(Faults(0), 3, None, None, None)
    assert check.finding([unasked], None).sentence == "no row made a call"
