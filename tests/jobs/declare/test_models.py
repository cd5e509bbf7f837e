"""Declarations of calls to models: what their answers hold for, which prices, and what is refused."""

import pytest

from jobs.errors import DeclarationError
from jobs.ledger.declared_folder import request_fingerprint
from tidegate import HttpLookup, Price, Rate, Service, lookup

PRICES = [
    Price("1 USD", per="1000000 tokens", model="small"),
    Price("9 USD", per="1000000 tokens", model="large"),
]


def over_http(prices=(), rate=(), **fields):
    usual = {"request": "POST /chat", "body": {"model": "small", "text": "{k}"}, "keys": {"k": "k"}}
    service = Service(
        name="model", url="http://a", max_concurrency=1, prices=prices, rate=rate
    )  # fmt: skip
    return HttpLookup(
        name="label", returns="label STRING", timeout=1.0, service=service,
        **usual | fields,
    )  # fmt: skip


async def label(row, http):
    http.bill(tokens=1)


def coroutine(prices=PRICES, label=label, **fields):
    service = Service(name="model", url="http://a", max_concurrency=1, prices=prices)
    usual = {"model": "small"} if prices else {}
    return lookup(
        service=service, keys={"k": "k"}, returns="label STRING", timeout=1.0, **usual | fields
    )(label)  # fmt: skip


def test_prices_follow_the_model_in_the_request_body():
    bill = {"tokens": "$.usage.total"}
    assert [price.amount for price in over_http(PRICES, bill=bill).prices] == ["1"]
    large = {"body": {"model": "large", "text": "{k}"}}
    assert [price.amount for price in over_http(PRICES, bill=bill, **large).prices] == ["9"]
    in_path = {"request": "POST /large/chat", "body": {"text": "{k}"}, "model": "large"}
    assert [price.amount for price in over_http(PRICES, bill=bill, **in_path).prices] == ["9"]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"body": {"text": "{k}"}}, "model: .* for the models large, small; declare model"),
        ({"body": {"model": "mid", "text": "{k}"}}, "model: .* none is for 'mid'"),
        ({"model": "large"}, "model: it is 'large', and the body has 'small'; leave out model"),
        ({"bill": {}}, "bill: its service has a price per token, and bill does not say where"),
        ({"rate": Rate(9, per="day", of="words")}, "bill: its service has a rate of word"),
    ],
)
def test_a_price_that_cannot_apply_to_a_call_is_refused(fields, sentence):
    with pytest.raises(DeclarationError, match=sentence):
        over_http(PRICES, **{"bill": {"tokens": "$.usage.total"}} | fields)


def test_a_repair_repeats_no_call_and_leaves_the_first_request_as_it_is():
    repaired = over_http(repair=1, body={"model": "small", "text": "{k}{repair}"})
    assert request_fingerprint(repaired) == request_fingerprint(over_http())
    number = over_http(repair=1, body={"model": "small", "n": "{k}", "text": "{{repair}} {repair}"})
    assert number.first_body == {"model": "small", "n": "{k}", "text": "{{repair}} "}
    named_so = {"keys": {"repair": "k"}, "body": {"text": "{repair}"}}
    assert over_http(**named_so).first_body == {"text": "{repair}"}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"repair": 2}, "repair is 2; it must be 0 or 1"),
        ({"repair": 1}, 'body: repair=1 and "{repair}" go together'),
        ({"body": {"text": "{k}{repair}"}}, 'body: repair=1 and "{repair}" go together'),
        ({"repair": 1, "body": {"k": "{k}", "text": "{repair}"}}, "it stands in a longer text"),
        ({"repair": 1, "body": {"text": "{k}{repair}"}, "cache": None}, "which cache=None does"),
        (
            {"repair": 1, "body": {"text": "{k}{repair}"}, "idempotency_header": "X-Key"},
            "which idempotency_header does not allow",
        ),
    ],
)
def test_a_repair_that_cannot_be_requested_is_refused(fields, sentence):
    with pytest.raises(DeclarationError, match=sentence):
        over_http(**fields)


def test_a_new_price_or_bill_keeps_stored_answers_and_a_new_prompt_does_not():
    plain = request_fingerprint(over_http())
    assert request_fingerprint(over_http(PRICES, bill={"tokens": "$.usage.total"})) == plain
    changed = {"body": {"model": "small", "text": "Label: {k}"}}
    assert request_fingerprint(over_http(**changed)) != plain


def test_check_names_a_coroutine_that_never_bills_a_priced_unit():
    async def unbilled(row, http):
        return await http.get("/bill")

    async def billed_inside(row, http):
        async def ask():
            http.bill(tokens=1)

        return await ask()

    trusted = [
        coroutine(label=function, version=2).trusts for function in (unbilled, billed_inside)
    ]
    assert trusted[0].startswith("http.bill: its service has a price per token, and its function")
    assert trusted[1] is None
    assert coroutine(label=unbilled, prices=()).trusts is None


def test_a_changed_named_prompt_repeats_calls_and_check_reports_an_unnamed_prompt():
    plain = coroutine(prices=())
    assert plain.trusts is None, "nothing of it is billed by token"
    assert coroutine().trusts.startswith("version: it counts by its name")
    named = [coroutine(fingerprint=[prompt, "small"]) for prompt in ("a", "b", "b")]
    first, second, third = map(request_fingerprint, named)
    assert first != second == third
    assert [declared.trusts for declared in (*named, coroutine(version=2))] == [None] * 4
    with pytest.raises(DeclarationError, match="fingerprint: its values must be texts, numbers"):
        coroutine(fingerprint=[object()])
