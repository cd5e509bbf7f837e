"""Runs the enrichment on the sample's day in a temporary folder, at the stand-in."""

import os
import subprocess
import sys
import tempfile
import unittest
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from sample import DAY, REVIEWS, ModelServer, becomes, model_service, right_answer, write_day

PROJECT = Path(__file__).resolve().parents[1]


def tidegate(folder: Path, *arguments: str, server: ModelServer) -> str:
    """Return what a command prints."""
    variables = os.environ | {
        "MODEL_URL": server.url, "MODEL_KEY": "of-the-stand-in", "PYTHONPATH": str(PROJECT),
    }  # fmt: skip
    command = [sys.executable, "-m", "tidegate", *arguments]
    return subprocess.run(
        command, cwd=folder, env=variables, check=False, stdout=subprocess.PIPE, text=True
    ).stdout


class ReviewsTest(unittest.TestCase):
    def test_every_review_has_its_label_and_the_costs_are_the_invoice(self) -> None:
        with tempfile.TemporaryDirectory() as name, model_service() as server:
            folder = Path(name)
            write_day(folder)
            run = ("run", "reviews", "--day", DAY, "--engine", "local")
            self.assertIn("published", tidegate(folder, *run, server=server))
            month = f"{datetime.now(UTC):%Y-%m}"
            costs = tidegate(folder, "costs", "--month", month, server=server)
            self.assertIn(f"{server.invoice:f} USD", costs)
            table = DeltaTable(folder / "data" / "published" / "reviews_labelled")
            # not by to_pyarrow_table, after which a program that ends at once may abort
            # (apache/arrow#34314)
            rows = pa.table(
                QueryBuilder().register("r", table).execute("SELECT * FROM r").read_all()
            ).to_pylist()
        self.assertEqual(len(rows), REVIEWS)
        for row in rows:
            is_lost = becomes(row["review_id"]) in ("cut", "refused")
            right = {"topic": None, "score": None} if is_lost else right_answer(row["review_id"])
            self.assertEqual({"topic": row["topic"], "score": row["score"]}, right)
            self.assertEqual(row["label_status"], "error" if is_lost else "ok")


if __name__ == "__main__":
    unittest.main()
