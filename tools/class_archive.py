"""Keeps Spark's verified classes in a file: a Spark program starts with a third less CPU.

    python -m tools.class_archive            make `spark.jsa` next to this Python (180 MB, a minute)

For a day of a thousand rows Java spends most of its time on loading and compiling 20,000 classes.
Out of the archive it maps them as they are (Java's class data sharing). Java looks by itself
whether the file fits its version and Spark's jars, and goes on without it when not; nothing but
time is lost.
"""

import contextlib
import datetime as dt
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from asyncio_core import AsyncFunction
from jobs.declare.enrichment import Enrichment, EventTime
from jobs.declare.function_lookup import AsyncFunctionLookup
from jobs.declare.inputs import Input
from jobs.declare.published.outputs import Output
from jobs.process.spark_submit import CLASS_ARCHIVE, NO_WARNINGS, SparkSubmit, archived_classes

ROOT = Path(__file__).resolve().parents[1]
DAY = "2013-01-10"


class Same(AsyncFunction[dict[str, Any], dict[str, Any]]):
    """Answers with the key that it is asked."""

    async def async_invoke(self, value: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"same": value["id"]}]


TRAINING = Enrichment(
    name="training",
    input=Input(path="in", row_id=["id"]),
    event_time=EventTime("at", max_out_of_orderness=dt.timedelta(hours=1)),
    lookups=[
        AsyncFunctionLookup(
            name="same",
            function=Same,
            keys={"id": "id"},
            returns="same BIGINT",
            timeout=60.0,
            max_concurrency=10,
        )
    ],
    output=Output(path="out"),
    mode="ordered",
)


def make() -> bool:
    """Run a small day of TRAINING and have Java keep the classes that it loaded, over an archive
    from before.

    False where this Java cannot: an empty file stands there then, so that nobody tries again.
    """
    draft = CLASS_ARCHIVE.with_suffix(f".{os.getpid()}")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        _write_rows(Path("in", f"date={DAY}"))
        submit = SparkSubmit(
            java_options=(
                f"{NO_WARNINGS} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
                f'"-XX:ArchiveClassesAtExit={draft}"'
            ),
            environment={"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
        )
        submit.run("tools.class_archive:TRAINING", days=[DAY], run_id="run", log=Path("log"))
    draft.touch()
    draft.replace(CLASS_ARCHIVE)
    return bool(archived_classes())


def _write_rows(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    noon = dt.datetime.fromisoformat(f"{DAY}T12:00:00Z")
    pq.write_table(pa.table({"id": range(100), "at": [noon] * 100}), folder / "rows.parquet")


if __name__ == "__main__":
    CLASS_ARCHIVE.unlink(missing_ok=True)  # else the new one would be made on top of it
    if not make():
        print(
            "This Java cannot archive Spark's classes; its programs start as ever.",
            file=sys.stderr,
        )
