"""The example of docs/lookups.md of many rows from an answer, as it stands there."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from aiohttp import web
from deltalake import DeltaTable

from tests.jobs.commands.chaining.conftest import DAY
from tests.support.documents import blocks
from tidegate.__main__ import main

OFFERS = {"1": [("A", 1.5), ("B", 2.0), ("A", 1.5)], "2": [], "4": [("C", None)]}


def test_a_summary_has_a_row_for_each_object_of_a_list(firms, service):
    (code,) = blocks("docs/lookups.md", "python", "Many rows from an answer")
    firms.declare(code.replace("SERVICE_URL", service.url))

    async def offers(request):
        found = OFFERS.get(request.path.split("/")[2])
        if found is None:
            return web.Response(status=404)
        return web.json_response({"offers": [{"shop": s, "price": p} for s, p in found]})

    service.answer = offers
    folder = Path(f"data/raw/products/date={DAY}")
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"ean": ["1", "2", "3", "4", None]}), folder / "part-0.parquet")
    assert main(["run", "products", "--package", "chained", "--day", DAY]) == 0
    table = DeltaTable("data/published/product_offers").to_pyarrow_table()
    rows = [(row["ean"], row["shop"], row["price"]) for row in table.to_pylist()]
    expected = [(ean, *offer) for ean, of_one in OFFERS.items() for offer in of_one]
    assert sorted(rows, key=repr) == sorted(expected, key=repr)
