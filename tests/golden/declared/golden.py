"""What the files beside it were written by: two lookups, one of which must not be asked twice."""

from datetime import timedelta

from tidegate import (
    Enrichment,
    Env,
    HttpLookup,
    Input,
    Ledger,
    Output,
    Retry,
    Service,
    Summary,
    Tolerance,
    Ttl,
)

weather = HttpLookup(
    name="weather",
    service=Service(name="weather_api", url=Env("GOLDEN_URL"), max_concurrency=2),
    request="GET /weather/{town}",
    keys={"town": "trim(town)"},
    returns="temp_c DOUBLE, at TIMESTAMP",
    timeout=20.0,
    retry=Retry(retries=0),
    on_miss="dead_letter",
    ttl=Ttl(ok=None, miss=None, error=timedelta(0)),
)
order = HttpLookup(
    name="order",
    service=Service(name="shop", url=Env("GOLDEN_URL"), max_concurrency=2),
    request="POST /order/{number}",
    keys={"number": "number"},
    returns="ordered BIGINT",
    timeout=20.0,
    retry=Retry(retries=0),
    idempotent=False,
)
towns = Enrichment(
    name="towns",
    input=Input(path="data/raw/towns", row_id=["number"]),
    lookups=[weather, order],
    output=Output(path="data/published/towns"),
    ledger=Ledger("data/ledger"),
    tolerance=Tolerance(error=0.5),
    summaries=[
        Summary(name="by_town", sql="SELECT town, count(*) AS number FROM towns GROUP BY town")
    ],
)
