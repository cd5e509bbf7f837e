"""Many keys in one request to a real server: each key has the outcome it would have had alone."""

import asyncio
import decimal
import random
from collections import Counter

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from jobs.clients.client import CallFailed, Throttled, Unclear
from jobs.clients.http.http_client import HttpClient
from jobs.errors import AccessRefused
from tests.support.examples import examples
from tidegate import Batch, HttpLookup, Retry, Service

BATCH = {
    "max_items": 50,
    "max_wait": 0.02,
    "item": {"id": "{id}", "q": "{q}"},
    "body": {"items": "{items}"},
    "answers": "$.results",
    "match": "$.id",
}


def lookup(url, batch=BATCH, **fields):
    standard = {
        "name": "place",
        "service": Service(name="geo", url=url, max_concurrency=4),
        "request": "POST /v2/batch",
        "keys": {"q": "q"},
        "returns": "lat DOUBLE",
        "timeout": 5.0,
        "attempt_timeout": 5.0,
        "miss_when": ["$.status == 'ZERO_RESULTS'"],
        "throttled_when": [429, 503, "$.status == 'OVER_LIMIT'"],
    }
    return HttpLookup(**standard | fields, batch=Batch(**batch))


def ask(declared, *keys, share=2):
    """What each key got, all asked at once: the answer's columns, None, or what was said."""

    async def message(caller, key):
        try:
            answer = await caller.call(key)
            return None if answer is None else caller.columns(answer)
        except (CallFailed, Throttled, AccessRefused, ValueError) as error:
            return error

    async def main():
        caller = HttpClient(declared, share)
        await caller.open()
        try:
            return await asyncio.gather(*(message(caller, (key,)) for key in keys))
        finally:
            await caller.close()

    return asyncio.run(main())


class Geocoder:
    """Answers {"items": [{"id", "q"}]} with the length of q; a q may be scripted to be something
    else.
    """

    def __init__(self, service):
        self.batches = []  # the q's of each request
        self.scripted = {}  # q -> a list of answers without their id
        self.refused = set()  # q's for which a whole batch is refused
        self.largest = None  # items in a batch
        self.order = list  # of the answers
        self.more = []  # answers to nothing
        service.answer = self.answer

    async def answer(self, request):
        items = (await request.json())["items"]
        self.batches.append([item["q"] for item in items])
        if self.largest is not None and len(items) > self.largest:
            return web.json_response({"error": "too many"}, status=413)
        if self.refused & {item["q"] for item in items}:
            return web.json_response({"error": "bad item"}, status=400)
        answers = [
            {"id": item["id"], **answer}
            for item in items
            for answer in self.scripted.get(item["q"], [{"lat": len(item["q"])}])
        ]
        return web.json_response({"results": self.order([*answers, *self.more])})


@pytest.fixture
def geocoder(service):
    return Geocoder(service)


def test_many_keys_are_one_request_and_each_has_its_own_answer(service, geocoder):
    geocoder.order = lambda answers: answers[::-1]
    assert ask(lookup(service.url), "a", "bb", "ccc") == [(1.0,), (2.0,), (3.0,)]
    assert service.log == ["/v2/batch"]
    assert geocoder.batches == [["a", "bb", "ccc"]]


def test_a_batch_without_a_body_is_not_advised_to_declare_its_status_as_a_miss(service, geocoder):
    async def nothing(_request):
        return web.Response(status=204)

    service.answer = nothing
    (failure,) = ask(lookup(service.url), "oslo")
    assert str(failure) == "204 No Content: the answer has no body"  # a batch takes conditions only


def test_equal_keys_are_items_of_their_own(service, geocoder):
    assert ask(lookup(service.url), "a", "a") == [(1.0,), (1.0,)]
    assert geocoder.batches == [["a", "a"]]


def test_an_item_that_the_service_leaves_out_is_an_error_of_its_row(service, geocoder):
    geocoder.scripted = {"a": []}
    failure, answer = ask(lookup(service.url), "a", "bb")
    assert str(failure) == "the service left this item out of its answer"
    assert not failure.passing
    assert answer == (2.0,)
    assert ask(lookup(service.url, BATCH | {"left_out": "miss"}), "a", "bb") == [None, (2.0,)]


def test_an_answer_with_an_unknown_id_is_ignored_and_reported_where_an_answer_is_missing(
    service, geocoder
):
    geocoder.more = [{"id": "nobody's", "lat": 9}, {"lat": 9}, "x", None]
    assert ask(lookup(service.url), "a", "bb") == [(1.0,), (2.0,)]
    geocoder.scripted = {"a": []}
    failure, _ = ask(lookup(service.url), "a", "bb")
    assert str(failure).endswith("; 4 of its answers have an unknown id")


def test_a_left_out_item_is_an_error_and_no_miss_if_an_answer_has_an_unknown_id(service, geocoder):
    geocoder.scripted = {"A@x": []}
    geocoder.more = [{"id": "a@x", "lat": 9}]  # the service writes ids in lower case
    failure, answer = ask(lookup(service.url, BATCH | {"left_out": "miss"}), "A@x", "bb")
    assert str(failure).endswith("; 1 of its answers have an unknown id")
    assert not failure.passing
    assert answer == (2.0,)


def test_two_answers_for_one_item_are_an_error_of_that_item(service, geocoder):
    geocoder.scripted = {"a": [{"lat": 1}, {"lat": 2}]}
    failure, answer = ask(lookup(service.url), "a", "bb")
    assert str(failure) == "the service gave 2 answers for this item; a lookup gives one"
    assert answer == (2.0,)


def test_each_item_reports_its_miss_or_its_throttling(service, geocoder):
    geocoder.scripted = {"a": [{"status": "ZERO_RESULTS"}], "bb": [{"status": "OVER_LIMIT"}]}
    miss, throttled, answer = ask(lookup(service.url), "a", "bb", "ccc")
    assert miss is None
    assert isinstance(throttled, Throttled)
    assert answer == (3.0,)


def test_a_value_that_does_not_fit_is_an_error_of_its_item(service, geocoder):
    geocoder.scripted = {"a": [{"lat": "north"}]}
    wrong, answer = ask(lookup(service.url), "a", "bb")
    assert str(wrong) == "lat: expected DOUBLE, got 'north'"
    assert answer == (2.0,)


def test_an_item_that_cannot_be_written_as_json_is_not_sent_with_the_others(service, geocoder):
    wrong, answer = ask(lookup(service.url), "\ud800", "bb")
    assert str(wrong).startswith("the request cannot be written as JSON")
    assert answer == (2.0,)
    assert geocoder.batches == [["bb"]]
    geocoder.batches.clear()
    assert len(ask(lookup(service.url), "\ud800")) == 1
    assert geocoder.batches == []


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_batch_refused_as_a_whole_is_halved_until_the_bad_item_is_alone(
    service, geocoder, status
):
    async def answer(request):
        message = await geocoder.answer(request)
        return message if message.status == 200 else web.json_response({}, status=status)

    service.answer = answer
    geocoder.refused = {"q5"}
    found = ask(lookup(service.url), *[f"q{n}" for n in range(8)])
    assert [outcome for n, outcome in enumerate(found) if n != 5] == [(2.0,)] * 7
    assert isinstance(found[5], CallFailed)
    assert str(found[5]).startswith(str(status))
    assert not found[5].passing
    assert [len(batch) for batch in geocoder.batches] == [8, 4, 4, 2, 2, 1, 1]


def test_an_answer_that_is_too_large_for_a_batch_is_asked_for_in_halves(service, geocoder):
    geocoder.scripted = {f"q{n}": [{"lat": 2, "more": "x" * 300}] for n in range(8)}
    assert ask(lookup(service.url, max_answer_bytes=800), *geocoder.scripted) == [(2.0,)] * 8
    (failure,) = ask(lookup(service.url, max_answer_bytes=200), "q1")
    assert str(failure) == "the answer is larger than 200 bytes (max_answer_bytes)"


def test_a_batch_that_may_act_twice_is_not_halved(service, geocoder):
    geocoder.refused = {"q1"}
    full = BATCH | {"max_items": 4, "max_wait": 1.0}
    declared = lookup(service.url, full, idempotent=False, retry=Retry(retries=0))
    assert [str(failure)[:3] for failure in ask(declared, *[f"q{n}" for n in range(4)])] == [
        "400"
    ] * 4
    assert len(geocoder.batches) == 1


@pytest.mark.parametrize("found", [{}, {"results": []}, {"results": "later"}])
def test_an_answer_that_throttles_beside_its_items_throttles_each_key(service, found):
    async def answer(request):
        return web.json_response(found | {"status": "OVER_QUERY_LIMIT"})

    service.answer = answer
    message = ask(lookup(service.url, throttled_when=["$.status == 'OVER_QUERY_LIMIT'"]), "a", "b")
    assert [type(outcome) for outcome in message] == [Throttled, Throttled]


@pytest.mark.parametrize("status", [429, 503])
def test_throttling_of_a_batch_throttles_each_of_its_keys(service, status):
    async def answer(request):
        return web.json_response({}, status=status, headers={"Retry-After": "7"})

    service.answer = answer
    found = ask(lookup(service.url), "a", "bb")
    assert [type(outcome) for outcome in found] == [Throttled] * 2
    assert found[0].seconds == 7
    assert len(service.log) == 1


@pytest.mark.parametrize(
    ("response", "kind", "passing"),
    [
        (lambda: web.Response(status=500), CallFailed, True),
        (lambda: web.Response(status=404), CallFailed, False),
        (lambda: web.Response(status=401), AccessRefused, None),
        (lambda: web.json_response({"status": "OVER_LIMIT"}), Throttled, None),
        (lambda: web.json_response({"status": "WELL"}), CallFailed, False),
        (lambda: web.json_response({"results": {"0": 1}}), CallFailed, False),
        (lambda: web.json_response(7), CallFailed, False),
    ],
)
def test_a_failure_of_a_request_is_a_failure_of_each_of_its_keys(service, response, kind, passing):
    async def answer(request):
        return response()

    service.answer = answer
    found = ask(lookup(service.url), "a", "bb")
    assert [type(outcome) for outcome in found] == [type(found[0])] * 2
    assert isinstance(found[0], kind)
    assert getattr(found[0], "passing", None) is passing
    assert len(service.log) == 1


# -- other ways to know an item again
# ----------------------------------------------------------------------------------
def listed(service, answer):
    """A service that takes a bare list of keys and gives what `answer` makes of it; the lists that
    it was asked.
    """
    asked = []

    async def reply(request):
        asked.append(await request.json())
        return web.json_response(answer(asked[-1]))

    service.answer = reply
    return asked


BARE = {"max_items": 50, "max_wait": 0.02, "item": "{q}"}


def test_answers_may_be_matched_by_the_order_of_the_items(service):
    asked = listed(
        service, lambda keys: [{"lat": len(key)} if key != "bb" else None for key in keys]
    )
    first, missing, last = ask(lookup(service.url, BARE), "a", "bb", "ccc")
    assert asked == [["a", "bb", "ccc"]]
    assert (first, last) == ((1.0,), (3.0,))
    assert str(missing) == "the service answered null"
    assert ask(lookup(service.url, BARE | {"left_out": "miss"}), "a", "bb") == [(1.0,), None]


def test_a_wrong_number_of_answers_is_an_error_of_every_item(service):
    listed(service, lambda keys: [{"lat": len(key)} for key in keys[1:]])
    found = ask(lookup(service.url, BARE), "a", "bb")
    assert {str(outcome) for outcome in found} == {
        (
            "the service gave 1 answers for 2 items, and without batch.match or batch.position they "
            "cannot be matched"
        )
    }


EMBED = {
    "max_items": 50, "max_wait": 0.02, "item": "{q}", "body": {"input": "{items}"},
    "answers": "$.data", "position": "$.index",
}  # fmt: skip


def embeddings(service, numbered):
    """As a service of embeddings: an answer names its input by the place in the request. numbered:
    its answers.
    """

    async def reply(request):
        texts = (await request.json())["input"]
        return web.json_response(
            {"data": numbered([{"index": n, "lat": len(text)} for n, text in enumerate(texts)])}
        )

    service.answer = reply


def test_answers_in_any_order_are_matched_by_the_position_that_they_name(service):
    embeddings(service, lambda answers: answers[::-1])
    assert ask(lookup(service.url, EMBED), "a", "bb", "ccc", "bb") == [
        (1.0,),
        (2.0,),
        (3.0,),
        (2.0,),
    ]


def test_positions_counted_from_one_are_an_error_of_all_and_shift_no_answer(service):
    embeddings(
        service, lambda answers: [answer | {"index": answer["index"] + 1} for answer in answers]
    )
    assert {str(outcome) for outcome in ask(lookup(service.url, EMBED), "a", "bb")} == {
        "the answers have the positions 1, 2 (batch.position); for 2 items they must be 0 to 1, each once"
    }


def mangled(dice, answers):
    """The answers as a service may number them, rightly in some of the ways."""
    dice.shuffle(answers)
    way = dice.choice(
        (
            "right",
            "right",
            "text",
            "float",
            "from one",
            "from one, last out",
            "twice",
            "none",
            "out",
            "more",
        )
    )
    if way.startswith("from one"):
        answers = [answer | {"index": answer["index"] + 1} for answer in answers]
        return [answer for answer in answers if way == "from one" or answer["index"] < len(answers)]
    if way in ("text", "float"):
        return [
            answer | {"index": (str if way == "text" else float)(answer["index"])}
            for answer in answers
        ]
    if way == "twice":
        answers[0]["index"] = answers[-1]["index"]
    if way == "none":
        del answers[0]["index"]
    return {"out": answers[1:], "more": [*answers, {"index": len(answers), "lat": 0}]}.get(
        way, answers
    )


def test_no_answer_reaches_another_key_however_a_service_numbers_its_answers(service):
    dice, came = random.Random(11), Counter()
    embeddings(service, lambda answers: mangled(dice, answers))
    for _ in range(60):
        keys = ["x" * dice.randrange(1, 30) for _ in range(dice.randrange(1, 6))]
        for key, answer in zip(keys, ask(lookup(service.url, EMBED), *keys), strict=True):
            assert isinstance(answer, CallFailed) or answer == (float(len(key)),), (keys, answer)
            came[type(answer)] += 1
    assert came[tuple] > 30
    assert came[Unclear] > 30


def test_an_answer_may_be_matched_by_its_only_key_and_equal_keys_are_sent_once(service):
    asked = listed(
        service, lambda keys: [{"code": key, "lat": key} for key in sorted(set(keys)) if key != 9]
    )
    declared = lookup(service.url, BARE | {"match": "$.code", "left_out": "miss"})
    assert ask(declared, 7, 3, 7, 9) == [(7.0,), (3.0,), (7.0,), None]
    assert asked == [[7, 3, 9]]


def test_a_decimal_key_matches_an_answer_with_another_number_of_digits(service):
    listed(service, lambda keys: [{"code": key, "lat": 1} for key in keys])
    declared = lookup(service.url, BARE | {"match": "$.code"})
    keys = [decimal.Decimal(text) for text in ("1.50", "2.00", "0.00", "1E-8", "-7.25")]
    assert ask(declared, *keys) == [(1.0,)] * 5


def test_a_key_that_is_a_number_matches_an_answer_with_its_text(service):
    texts = {1.5: "1.50", 7.0: "7.0"}
    listed(service, lambda keys: [{"code": texts[key], "lat": key} for key in keys])
    declared = lookup(service.url, BARE | {"match": "$.code"})
    assert ask(declared, decimal.Decimal("1.50"), 7.0) == [(1.5,), (7.0,)]


def test_an_item_whose_answer_is_null_is_a_miss_where_miss_when_says_so(service):
    listed(service, lambda keys: [None if key == "bb" else {"lat": 1} for key in keys])
    assert ask(lookup(service.url, BARE, miss_when=["$ == null"]), "a", "bb") == [(1.0,), None]


def test_an_item_that_a_condition_cannot_read_is_an_error_of_that_item(service, geocoder):
    nested = {}
    for _ in range(150):
        nested = {"a": nested}
    geocoder.scripted = {"deep": [{"lat": 1, "more": nested}]}
    declared = lookup(service.url, miss_when=["$..gone"])
    deep, fine = ask(declared, "deep", "ok")
    assert str(deep) == "the answer is nested too deeply for a path with .."
    assert fine == (2.0,)


# -- against the plainest model: each key asked alone
# ------------------------------------------------------------------
KINDS = {
    "hit": [{"lat": 4.5}],
    "miss": [{"status": "ZERO_RESULTS"}],
    "left out": [],
    "doubled": [{"lat": 1}, {"lat": 2}],
    "unfit": [{"lat": "x"}],
}


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.lists(st.tuples(st.sampled_from([*KINDS, "refused"]), st.integers(0, 3)), max_size=30),
    max_items=st.integers(1, 40),
    share=st.integers(1, 3),
    largest=st.none() | st.integers(1, 10),
    seed=st.integers(0, 1000),
)
def test_any_mix_of_keys_has_the_outcomes_of_each_key_asked_alone(geocoder, service, **drawn):
    keys, max_items, share, shuffled = (
        drawn["keys"],
        drawn["max_items"],
        drawn["share"],
        random.Random(drawn["seed"]),
    )
    names = [f"{kind} {number}" for kind, number in keys]
    geocoder.scripted = {
        name: KINDS[name.rsplit(" ", 1)[0]] for name in names if not name.startswith("refused")
    }
    geocoder.refused = {name for name in names if name.startswith("refused")}
    geocoder.largest, geocoder.order = (
        drawn["largest"],
        lambda answers: shuffled.sample(answers, len(answers)),
    )
    geocoder.batches.clear()
    service.highest_in_flight = 0
    together = ask(lookup(service.url, BATCH | {"max_items": max_items}), *names, share=share)
    assert service.highest_in_flight <= share
    assert all(len(batch) <= max_items for batch in geocoder.batches)
    if not geocoder.refused and geocoder.largest is None:
        assert Counter(name for batch in geocoder.batches for name in batch) == Counter(names)
    known = {}
    for name in set(names):
        (known[name],) = ask(lookup(service.url, BATCH | {"max_items": 1, "max_wait": 0.0}), name)
    assert list(map(repr, together)) == [repr(known[name]) for name in names]
