"""Larger days of the same kind as the real feed, for tests and benchmarks."""

from __future__ import annotations

import random
from datetime import date
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from demo import data

FLIGHT_NUMBERS = 10_000  # real flight numbers end at 8500


def write(root: Path, day: date, *, rows: int = 1_000_000, files: int = 8, seed: int = 0) -> list[Path]:
    """Writes the raw feed's folder of `day` with so many rows in so many files; the same seed gives the same rows.

    Each file plays whole real days, drawn from the year without repetition, one after another (the last one may be cut
    short). So disorder, late rows, outcomes and the number of rows between two watermarks are those of the real feed,
    file by file; event times span the year, and only the folder says `day`. Rows stay distinct by carrier, flight,
    origin and scheduled_departure, since the n-th file (from 0) adds n * 10,000 to its flight numbers.

    Files of these names are replaced, one by one; other files of the folder are left. ValueError when a file would need
    more rows than the year has.
    """
    year = data.flights()
    if not 1 <= files <= rows or -(-rows // files) > year.num_rows:
        raise ValueError(
            f"{rows:,} rows in {files} files: a file takes 1 to {year.num_rows:,} rows; choose another number of files"
        )
    counts = pc.value_counts(year["date"]).field("counts").to_pylist()
    real_days = list(zip(accumulate(counts, initial=0), counts, strict=False))
    year = year.drop_columns("date")
    draw = random.Random(seed)
    paths = []
    for n in range(files):
        played = _play(year, real_days, rows // files + (n < rows % files), draw)
        numbers = pc.add(played["flight"], pa.scalar(n * FLIGHT_NUMBERS, pa.int32()))
        path = data.day_file(root, day).with_name(f"part-{n:05}.parquet")
        with data.replacing(path) as unfinished:
            pq.write_table(played.set_column(played.schema.get_field_index("flight"), "flight", numbers), unfinished)
        paths.append(path)
    return paths


def _play(year: pa.Table, real_days: list[tuple[int, int]], rows: int, draw: random.Random) -> pa.Table:
    """Enough real days (first row, number of rows), in the order of the year, cut to `rows`."""
    chosen: list[tuple[int, int]] = []
    for real_day in draw.sample(real_days, len(real_days)):
        if sum(count for _, count in chosen) >= rows:
            break
        chosen.append(real_day)
    return pa.concat_tables(year.slice(first, count) for first, count in sorted(chosen)).slice(0, rows)
