"""The sentences of the checks."""

from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
from honest_day import PLANE, declare, honest_day

from data_quality.checks.errors_tolerated import ErrorsTolerated
from data_quality.checks.time_limit_held import TimeLimitHeld, Times
from data_quality.findings import Finding, in_words, names_personal
from data_quality.rows.run_output import RunOutput
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


def test_a_sentence_is_a_line_with_the_beginning_of_a_long_value():
    row = {"note": "two\nlines", "answer": "word " * 50_000, "at": None}
    found = Finding(False, "1 row is wrong", 1, 1).with_evidence([row], declare())
    assert found.sentence.startswith("1 row is wrong; first: note two lines, answer word word ")
    assert found.sentence.endswith("... (250,000 characters)")
    assert len(found.sentence) < 400
    assert found.evidence == (row,)


def test_rows_that_all_timed_out_count_as_rows_with_a_call(tmp_path):
    declared = honest_day(tmp_path).declared
    check = TimeLimitHeld(declared, declared.lookups[0])
    timed_out = Times(Faults(0), 3, None, None, 2001.0)
    assert check.finding([timed_out], None).sentence == "timeouts after 2.001 s or more"
    unasked = Times(Faults(0), 3, None, None, None)
    assert check.finding([unasked], None).sentence == "no row made a call"


@pytest.mark.parametrize(
    ("hidden", "causes"),
    [
        (False, "; 2 times 500: no row …; 1 time 404 Not Found; 1 time 502"),
        (True, "; 2 times 500; 1 time 404; 1 time 502"),
    ],
)
def test_causes_keep_the_http_status_also_of_a_server_without_reason_phrases(hidden, causes):
    lookup = replace(PLANE, hidden_key=hidden)
    declared = declare(lookups=(lookup,))
    errors = ["500: no row 17171", "500: no row 18181", "502", "404 Not Found"]
    table = pa.table({"_plane_status": ["error"] * 4, "_plane_error": errors})
    day = SimpleNamespace(output=RunOutput.of_table(declared, table))
    assert ErrorsTolerated(declared, lookup).causes(day) == causes


@pytest.mark.parametrize("name", ["phone", "phone#", "#phone", "e-mail", "höhe (m)"])
def test_a_rule_about_a_personal_column_is_recognized_whatever_its_name(name):
    declared = declare(personal=(name,))
    assert names_personal(str({"column": name.upper(), "max_value": 3}), declared)
    assert names_personal(str({"row_condition": f'col("{name}") > 3'}), declared)
    assert not names_personal(str({"column": f"x{name}y"}), declared)
