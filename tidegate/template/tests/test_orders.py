"""Runs the enrichment on the sample's day in a temporary folder, with a real service."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from sample import DAY, RATED, credit_service, write_day

PROJECT = Path(__file__).resolve().parents[1]


def tidegate(folder: Path, *arguments: str, url: str) -> str:
    """Return what a command prints."""
    variables = os.environ | {"CREDIT_URL": url, "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-m", "tidegate", *arguments]
    return subprocess.run(
        command, cwd=folder, env=variables, check=False, stdout=subprocess.PIPE, text=True
    ).stdout


class OrdersTest(unittest.TestCase):
    def test_every_order_has_the_rating_of_its_customer(self) -> None:
        with tempfile.TemporaryDirectory() as name, credit_service() as url:
            folder = Path(name)
            write_day(folder)
            self.assertIn("right", tidegate(folder, "check", url=url))
            self.assertIn("published", tidegate(folder, "run", "orders", "--day", DAY, url=url))
            table = DeltaTable(folder / "data" / "published" / "orders_rated")
            # not by to_pyarrow_table, after which a program that ends at once may abort
            # (apache/arrow#34314)
            rows = pa.table(
                QueryBuilder().register("o", table).execute("SELECT * FROM o").read_all()
            ).to_pylist()
        self.assertEqual(len(rows), 200)
        for row in rows:
            number = int(row["customer_id"].removeprefix("c"))
            self.assertEqual(row["score"], 500 + number if number < RATED else None)
            self.assertEqual(row["rating_status"], "ok" if number < RATED else "miss")


if __name__ == "__main__":
    unittest.main()
