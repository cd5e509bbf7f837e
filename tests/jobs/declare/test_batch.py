"""Requests with bodies, batches and pages as they are declared: a wrong one is refused before work
starts.
"""

import dataclasses

import pytest

from jobs.errors import DeclarationError
from jobs.ledger.declared_folder import request_fingerprint
from tidegate import ApiKey, Batch, Env, HttpLookup, Pages, Service

SERVICE = Service(name="geo", url="http://geo", max_concurrency=4)
ITEM = {"id": "{id}", "q": "{q}"}
BATCH = {
    "max_items": 50,
    "max_wait": 0.2,
    "item": ITEM,
    "body": {"items": "{items}"},
    "answers": "$.r",
    "match": "$.id",
}
PAGES = {"next": "$.next", "max_pages": 9}


def lookup(**fields):
    standard = {
        "name": "place",
        "service": SERVICE,
        "keys": {"q": "q"},
        "returns": "lat DOUBLE",
        "timeout": 5.0,
    }
    return HttpLookup(**standard | fields)


def batched(**fields):
    return lookup(request="POST /batch", batch=Batch(**BATCH | fields))


WRONG = {
    "no items at all": (
        lambda: batched(max_items=0),
        "max_items is 0; it must be a whole number, at least 1.",
    ),
    "a wait without end": (
        lambda: batched(max_wait=float("inf")),
        "max_wait is inf s; it must be 0 or more.",
    ),
    "a wait as long as the row's": (
        lambda: batched(max_wait=5.0),
        "a row leaves after timeout, 5.0 s; lower max_wait.",
    ),
    "answers nowhere": (lambda: batched(answers="r"), "batch.answers: 'r' is not a JSON path"),
    "ids nowhere": (lambda: batched(match="id"), "batch.match: 'id' is not a JSON path"),
    "something else left out": (
        lambda: batched(left_out="null"),
        "left_out is 'null'; it must be one of: error, miss.",
    ),
    "a position nowhere": (
        lambda: batched(item="{q}", match=None, position="index"),
        "batch.position: 'index' is not a JSON path",
    ),
    "a position and an id": (
        lambda: batched(position="$.n"),
        "batch: position and match: an answer is matched by one",
    ),
    "a position of an item with an id": (
        lambda: batched(match=None, position="$.n"),
        "batch: position and {id} in item: an answer is matched by one of them; leave one out.",
    ),
    "items left out of positions": (
        lambda: batched(item="{q}", match=None, position="$.n", left_out="miss"),
        'left_out="miss" and position are both given',
    ),
    "a body without items": (
        lambda: batched(body={"a": 1}),
        'it must hold "{items}" once, as a text of its own',
    ),
    "items twice": (lambda: batched(body=["{items}", "{items}"]), 'it must hold "{items}" once'),
    "items inside a text": (lambda: batched(body="x{items}"), 'it must hold "{items}" once'),
    "a key that no item uses": (
        lambda: batched(item={"id": "{id}"}),
        "'q' is in keys, but batch.item does not use it.",
    ),
    "an item of no key": (
        lambda: batched(item={"q": "{q}", "p": "{p}"}),
        "'p' is in batch.item, but is not a key.",
    ),
    "a key called id": (
        lambda: lookup(
            request="POST /b", keys={"id": "q"}, batch=Batch(max_items=2, max_wait=0.1, item="{id}")
        ),
        "a batch makes {id} itself; rename the key 'id'.",
    ),
    "no id for two keys": (
        lambda: lookup(
            request="POST /b",
            keys={"q": "q", "p": "p"},
            batch=Batch(max_items=2, max_wait=0.1, item=["{q}", "{p}"], match="$.q"),
        ),
        'put "{id}" into item',
    ),
    "a batch by GET": (
        lambda: lookup(request="GET /b", batch=Batch(**BATCH)),
        "batch: a GET request has no body",
    ),
    "a key in a batch's path": (
        lambda: lookup(request="POST /b/{q}", batch=Batch(**BATCH)),
        "keys go into batch.item and the body into batch.body",
    ),
    "a status as an item's miss": (
        lambda: lookup(request="POST /b", batch=Batch(**BATCH), miss_when=[410]),
        "in a batch a status is about the whole request",
    ),
    "a batch that may hang for ever": (
        lambda: lookup(request="POST /b", batch=Batch(**BATCH), timeout=None),
        "batch: it needs timeout or attempt_timeout",
    ),
    "a body by GET": (
        lambda: lookup(request="GET /{q}", body={}),
        "body: a GET request has no body; write POST or PUT.",
    ),
    "a key that nothing uses": (
        lambda: lookup(request="POST /b", body={"a": "b"}),
        "'q' is in keys, but the request or its body does not use it.",
    ),
    "a body's word that is no key": (
        lambda: lookup(request="POST /{q}", body={"a": "{p}"}),
        "'p' is in the request or its body, but is not a key.",
    ),
    "pages by POST": (
        lambda: lookup(request="POST /{q}", pages=Pages(**PAGES)),
        "but request is 'POST /{q}'; begin it with GET, or leave pages out.",
    ),
    "no page at all": (
        lambda: Pages(next="$.next", max_pages=0),
        "max_pages is 0; it must be a whole number",
    ),
    "pages that lead nowhere": (
        lambda: Pages(next="next", max_pages=1),
        "pages.next: 'next' is not a JSON path",
    ),
    "a parameter for an address": (
        lambda: Pages(next="Link", max_pages=1, parameter="page"),
        "pages: parameter is 'page', but next=\"Link\" gives whole addresses; leave parameter out.",
    ),
    "several lists": (
        lambda: Pages(next="$.n", max_pages=1, items="$..a"),
        "items is '$..a'; it must name one list",
    ),
    "a secret's header": (
        lambda: lookup(request="GET /{q}", headers={"authorization": "Bearer x"}),
        "headers: authorization is not allowed here; declare it as the service's auth.",
    ),
    "the key's header": (
        lambda: lookup(
            request="GET /{q}",
            headers={"x-api-key": "x"},
            service=dataclasses.replace(SERVICE, auth=ApiKey(Env("KEY"))),
        ),
        "headers: x-api-key is not allowed here",
    ),
    "a header of two lines": (
        lambda: lookup(request="GET /{q}", headers={"X-A": "a\nb"}),
        "headers: X-A must be one line of ASCII text",
    ),
    "no name of a header": (
        lambda: lookup(request="GET /{q}", headers={"X A": "a"}),
        "'X A' is not a header name",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_request_is_refused_with_rule_value_and_cure(case):
    make, message = WRONG[case]
    with pytest.raises(DeclarationError) as error:
        make()
    assert message in str(error.value)


def test_only_a_change_of_the_request_changes_the_request_fingerprint():
    post = {"request": "POST /b", "body": {"q": "{q}"}}
    pages = {"request": "GET /{q}", "pages": Pages(**PAGES)}
    anew = [
        lookup(**post), lookup(**post | {"body": {"q": "{q}", "x": 1}}),
        lookup(**post, headers={"Accept": "a/b"}), batched(),
        batched(item={"id": "{id}", "query": "{q}"}), batched(answers="$.results"),
        batched(left_out="miss"), batched(item="{q}", match=None),
        batched(item="{q}", match=None, position="$.n"), lookup(**pages),
        lookup(request="GET /{q}"), lookup(**pages | {"pages": Pages(**PAGES, items="$.items")}),
        lookup(**pages | {"pages": Pages(**PAGES | {"next": "Link"})}),
        lookup(**pages | {"pages": Pages(**PAGES, more="$.more")}),
    ]  # fmt: skip
    assert len({request_fingerprint(changed) for changed in anew}) == len(anew)
    assert request_fingerprint(batched()) == request_fingerprint(batched(max_items=9, max_wait=0.5))
    assert request_fingerprint(lookup(**pages)) == request_fingerprint(
        lookup(**pages | {"pages": Pages(**PAGES | {"max_pages": 3})})
    )
