"""The surroundings of the demo: sample data, the weather service, the planes' database."""

import math
import shutil
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import astuple
from datetime import date
from pathlib import Path

import pyarrow.dataset as ds

from demo import data
from demo.draws import FAULTS, LATENCY_P99_S, LOG_LATENCY, Faults

DATA = Path("data")
CALLS = DATA / "demo" / "weather_calls.jsonl"
LEDGER = DATA / "ledger"
DONE = DATA / "demo" / "done"  # exists after a successful demo
PLANES = DATA / "demo" / "planes.db"
FAULT_SHARES = ",".join(
    f"{fault}={share}" for fault, share in zip(FAULTS, astuple(Faults()), strict=True)
)


def prepare(days: Sequence[date] | None) -> str:
    rows, written = data.prepare(DATA, days)
    count = "all" if days is None else len(days)
    return (
        f"{rows:,} flights of {count} days, weather and planes under {DATA}/ ({written} files "
        "written)"
    )


def answers_kept() -> int:
    dataset = ds.dataset([str(part) for part in LEDGER.rglob("*.parquet")], format="parquet")
    return int(dataset.count_rows(filter=ds.field("outcome").isin(["ok", "miss"])))


def forget_answers() -> str:
    if not DONE.exists():
        return ""
    DONE.unlink()
    shutil.rmtree(LEDGER, ignore_errors=True)
    return "; the ledger of the last demo is emptied"


def environment(weather_url: str) -> dict[str, str]:
    return {
        "WEATHER_URL": weather_url,
        "PLANES_URL": f"sqlite+aiosqlite:///{PLANES}",
        # a third less CPU for a short run
        "TIDEGATE_SPARK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",
    }


def weather_program(port: str) -> list[str]:
    """Return the command of the weather service with faults."""
    command = [sys.executable, "-m", "demo.weather_service", f"--port={port}"]
    return [*command, f"--faults={FAULT_SHARES}", f"--data={DATA / 'demo'}", f"--log={CALLS}"]


def describe(weather_url: str) -> str:
    with closing(sqlite3.connect(PLANES)) as database:
        planes = database.execute("SELECT count(*) FROM planes").fetchone()[0]
    p50, p99, faults = (
        1e3 * math.exp(LOG_LATENCY.median),
        1e3 * LATENCY_P99_S,
        sum(astuple(Faults())),
    )
    address = weather_url.removeprefix("http://")
    return (
        f"weather on {address} (p50 {p50:.0f} ms, p99 {p99:.0f} ms, {faults:.0%} faults), "
        f"{PLANES.name} {planes:,} rows"
    )
