"""Each review, with its topic and how content its author is, by a language model."""

from dataclasses import replace
from typing import Any

from tidegate import (
    Bearer,
    Budget,
    Enrichment,
    Env,
    HttpLookup,
    Input,
    Output,
    Price,
    Service,
    Tolerance,
)

PROMPT = "Name the topic of the review, and score how content its author is, from 1 to 5."
SCHEMA = {
    "type": "object",
    "required": ["topic", "score"],
    "properties": {
        "topic": {"enum": ["price", "delivery", "quality", "other"]},
        "score": {"type": "integer", "minimum": 1, "maximum": 5},
    },
}


def body(prompt: str) -> dict[str, Any]:
    """Return the body of a request; a second request has the reason in place of {repair}."""
    return {
        "model": "small-1",
        "max_tokens": 100,
        "messages": [
            {"role": "system", "content": prompt},
            {"role": "user", "content": "{review}{repair}"},
        ],
    }


model = Service(
    name="model",
    url=Env("MODEL_URL"),
    auth=Bearer(Env("MODEL_KEY")),
    max_concurrency=16,  # calls in flight
    prices=[  # at_most: of one call, which budgets reserve
        Price("0.15 USD", per="1000000 input_tokens", at_most=2_000),
        Price("0.60 USD", per="1000000 output_tokens", at_most=100),
    ],
    budget=Budget("5.00 USD", per="day"),
)
label = HttpLookup(
    name="label",
    service=model,
    request="POST /v1/chat/completions",
    body=body(PROMPT),
    keys={"review": "review"},  # Spark SQL over the input's columns
    answer="$.choices[0].message.content",  # a text with JSON
    schema=SCHEMA,  # what does not fit is an error
    repair=1,  # after one more request
    returns="topic STRING, score INT",  # Spark DDL
    timeout=60.0,  # s, all attempts and the waits between them
    cut_when="$.choices[0].finish_reason == 'length'",
    error_when=["length($.choices[0].message.refusal) > 0"],
    bill={"input_tokens": "$.usage.prompt_tokens", "output_tokens": "$.usage.completion_tokens"},
)
brief = replace(label, body=body("Topic and score of the review, as JSON."))  # for tidegate eval

reviews = Enrichment(
    name="reviews_labelled",
    # a folder per day: date=2026-11-19/*.parquet
    input=Input(path="data/raw/reviews", row_id=["review_id"]),
    lookups=[label],
    output=Output(path="data/published/reviews_labelled"),
    tolerance=Tolerance(error=0.2),  # of the rows; more, and the day is not published
    start="2026-11-01",
    # schedule="15 2 * * *",  # UTC; enriches yesterday, once your days arrive
)
