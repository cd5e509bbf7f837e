"""Orders with the rating of their customer, on several hosts."""

import os

from tidegate import Enrichment, Env, HttpLookup, Input, Ledger, Output, Service

PLACE = os.environ["LAB_PLACE"]
LIMIT = 16  # calls in flight

orders = Enrichment(
    name="orders",
    input=Input(path=f"{PLACE}/raw", row_id=["order_id"]),
    lookups=[
        HttpLookup(
            name="rating",
            service=Service(name="credit", url=Env("CREDIT_URL"), max_concurrency=LIMIT),
            request="GET /customers/{customer}/rating",
            keys={"customer": "customer_id"},
            returns="score INT, grade STRING",
            paths={"grade": "$.rating.grade"},
            timeout=float(os.environ.get("LAB_TIMEOUT", "10")),
        )
    ],
    output=Output(path=f"{PLACE}/published"),
    ledger=Ledger(path=f"{PLACE}/ledger"),
)
