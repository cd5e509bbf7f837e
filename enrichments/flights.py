"""Enriches each flight with the weather at its origin and the plane that flew it."""

import os
from datetime import timedelta

from tidegate import (
    Enrichment,
    Env,
    EventTime,
    HttpLookup,
    Input,
    Outage,
    Output,
    Service,
    SqlLookup,
    Summary,
    Tolerance,
)

weather = HttpLookup(
    name="weather",
    service=Service(
        name="weather_api",
        url=Env("WEATHER_URL"),
        max_concurrency=10,
        outage=Outage(probe_every=timedelta(seconds=5), wait_at_most=timedelta(seconds=30)),
    ),
    request="GET /v1/{origin}/{moment}",
    keys={"origin": "origin", "moment": "scheduled_departure"},
    returns="temp_c DOUBLE, wind_ms DOUBLE, visibility_m INT",
    paths={"wind_ms": "$.wind.speed"},
    timeout=2.0,
    attempt_timeout=1.0,
    ranges={"temp_c": (-40, 50), "wind_ms": (0, 100), "visibility_m": (0, 20_000)},
)
plane = SqlLookup(
    name="plane",
    url=Env("PLANES_URL"),
    table="planes",
    keys={"tailnum": "tail_number"},
    returns="manufacturer STRING, model STRING, seats INT",
    timeout=5.0,
    max_concurrency=4,
    ranges={"seats": (1, 900)},
)
flights = Enrichment(
    name="flights_enriched",
    description=(
        "Every flight out of New York, with the weather at its origin at the scheduled "
        "hour and its plane."
    ),
    input=Input(
        path="data/raw/flights",
        partition="date",
        row_id=["carrier", "flight", "origin", "scheduled_departure"],
    ),
    lookups=[weather, plane],
    output=Output(path=os.environ.get("FLIGHTS_TABLE", "data/published/flights_enriched")),
    mode="ordered",
    event_time=EventTime("scheduled_departure", max_out_of_orderness=timedelta(hours=1)),
    tolerance=Tolerance(timeout=0.01, error=0.01),
    schedule="15 2 * * *",
    publish_by="06:30",
    start="2013-01-01",
    end="2014-01-01",
    owners=["team:data-eng"],
    summaries=[
        Summary(
            name="delays_by_weather",
            description=(
                "Mean departure delay by visibility and wind, to show what weather does to a day."
            ),
            sql="""
                SELECT CASE WHEN weather_status <> 'ok' THEN 'weather unknown'
                            WHEN visibility_m < 5000 THEN 'low visibility'
                            ELSE 'clear' END AS visibility,
                       CASE WHEN wind_ms >= 10 THEN 'strong wind'
                            WHEN wind_ms IS NULL THEN 'wind unknown'
                            ELSE 'calm' END AS wind,
                       count(*) AS flights,
                       sum(CASE WHEN actual_departure IS NULL THEN 1 ELSE 0 END) AS cancelled,
                       avg(departure_delay_min) AS mean_departure_delay_min
                FROM flights_enriched GROUP BY 1, 2 ORDER BY 1, 2
            """,
        )
    ],
)
