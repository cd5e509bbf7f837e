"""Orders as other days have them: keys that only Spark evaluates, text, a red check, windows, and
changed rows.
"""

import datetime as dt
import os
from dataclasses import replace

from lab_enrichments import orders as first
from tidegate import EventTime, Expectation, Input, Ledger, Output, Tumbling, Window

PLACE = first.PLACE
(RATING,) = first.orders.lookups


def made(name, **more):
    output = more.pop("output", f"{PLACE}/{name}")
    return replace(
        first.orders,
        name=name,
        output=Output(path=output),
        ledger=Ledger(path=f"{PLACE}/ledger_{name}"),
        **more,
    )


by_spark = made(
    "by_spark", lookups=[replace(RATING, keys={"customer": "reverse(reverse(customer_id))"})]
)
of_text = made(
    "of_text",
    input=Input(
        path=f"{PLACE}/text",
        row_id=["order_id"],
        format="csv",
        schema="order_id BIGINT, customer_id STRING",
    ),
)
red = made(
    "red",
    expectations=[
        Expectation(
            "expect_column_values_to_be_between", column="order_id", min_value=0, max_value=9
        )
    ],
)
in_folder = made("in_folder", output=os.environ.get("LAB_FOLDER", "/tmp/lake/orders"))
windowed = made(
    "windowed",
    input=Input(path=f"{PLACE}/timed", row_id=["order_id"]),
    event_time=EventTime("at", max_out_of_orderness=dt.timedelta(seconds=5)),
    windows=[
        Window(
            "hourly",
            of=Tumbling(dt.timedelta(hours=1)),
            key=["customer_id"],
            sql="count(*) AS orders",
        )
    ],
)
changing = made(
    "changing",
    input=Input(
        path=f"{PLACE}/whole", partition="part", every=["all"], row_id=["order_id"], rows="changed"
    ),
)
