"""What an answer reports of its use is read digit for digit, or is unknown: never a wrong number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.declare.answers.usage import MOST, UsageReader
from jobs.errors import DeclarationError

PATHS = {
    "input_tokens": "$.usage.prompt - $.usage.details.cached",
    "cached_tokens": "$.usage.details.cached",
    "output_tokens": "$.usage.completion",
}
NUMBER = st.one_of(
    st.integers(-3, 2_000), st.none(), st.sampled_from(["7", True, 1.5, 8.0, 10**13, [], {}]),
)  # fmt: skip


def count(value):
    """What a number of units means: a model that knows no path."""
    if value is None:
        return 0
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and value == int(value) and 0 <= value <= MOST else None


@given(
    usage=st.fixed_dictionaries(
        {},
        optional={
            "prompt": NUMBER,
            "completion": NUMBER,
            "details": st.one_of(st.none(), st.fixed_dictionaries({}, optional={"cached": NUMBER})),
        },
    )
)
def test_usage_is_the_reported_number_or_unknown_and_never_wrong(usage):
    details = usage.get("details", {})
    cached = 0 if details is None else count(details["cached"]) if "cached" in details else None
    prompt = count(usage["prompt"]) if "prompt" in usage else None
    completion = count(usage["completion"]) if "completion" in usage else None
    right = None
    if None not in (cached, prompt, completion) and prompt >= cached:
        right = {
            "input_token": prompt - cached, "cached_token": cached, "output_token": completion,
        }  # fmt: skip
        numbers = [usage["prompt"], usage["completion"], (details or {}).get("cached")]
        right = None if numbers == [None] * 3 else right
    assert UsageReader(PATHS).read({"usage": usage}) == right


@pytest.mark.parametrize("answer", [{"usage": None}, None])
def test_an_answer_with_a_null_usage_has_an_unknown_usage(answer):
    assert UsageReader(PATHS).read(answer) is None
    assert UsageReader(PATHS | {"hits": 1}).read(answer) is None
    assert UsageReader({"hits": 1}).read(answer) == {"hit": 1}


@pytest.mark.parametrize("difference", ["$.a - $.b", "$.a-$.b", "$.a  -  $.b", "$.a-b - $.b"])
def test_a_difference_is_read_with_or_without_spaces(difference):
    assert UsageReader({"tokens": difference}).read({"a": 5, "a-b": 5, "b": 2}) == {"token": 3}


@pytest.mark.parametrize(
    ("bill", "sentence"),
    [
        ({"requests": "$.n"}, "'requests' is not a unit that answers report"),
        ({"Input tokens": "$.n"}, "'Input tokens' is not a unit that answers report"),
        ({"tokens": "usage"}, "bill: tokens: 'usage' is not a JSON path"),
        ({"tokens": "$.usage[*].n"}, "may match several values; name one"),
        ({"tokens": "$.a - 7"}, "bill: tokens: .* is not a JSON path"),
        ({"hits": 0}, "bill: hits is 0; it must be a JSON path, or the number of units"),
        ({"token": "$.a", "tokens": 1}, "two of its names mean the same unit"),
        ({"token": "$.a", "tokens": "$.b"}, "two of its names mean the same unit"),
    ],
)
def test_a_bill_that_cannot_be_read_is_refused(bill, sentence):
    with pytest.raises(DeclarationError, match=sentence):
        UsageReader(bill)
