"""Each order, with the customer's credit rating."""

from tidegate import Enrichment, Env, HttpLookup, Input, Output, Service

rating = HttpLookup(
    name="rating",
    service=Service(name="credit", url=Env("CREDIT_URL"), max_concurrency=20),  # calls in flight
    request="GET /customers/{customer}/rating",
    keys={"customer": "customer_id"},  # Spark SQL over the input's columns
    returns="score INT, grade STRING",  # Spark DDL
    timeout=5.0,  # s, all attempts and the waits between them
    on_miss="null",  # a customer without a rating keeps its row
)
orders = Enrichment(
    name="orders_rated",
    # a folder per day: date=2026-11-19/*.parquet
    input=Input(path="data/raw/orders", row_id=["order_id"]),
    lookups=[rating],
    output=Output(path="data/published/orders_rated"),
    start="2026-11-01",
    # schedule="15 2 * * *",  # UTC; enriches yesterday, once your days arrive
)
