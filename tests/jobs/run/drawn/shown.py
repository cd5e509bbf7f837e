"""The published table as an Iceberg table, and as folders of Parquet, beside the Delta table."""

import datetime as dt
import os
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

ICEBERG, PARQUET = "lake.drawn.shown", "shown"
CATALOG = "PYICEBERG_CATALOG__LAKE__"


def make_catalog():
    """A catalog of SQLite in the current folder, as the environment names it."""
    here = Path.cwd()
    properties = {
        "type": "sql", "uri": f"sqlite:///{here}/catalog.db", "warehouse": f"{here}/warehouse",
    }  # fmt: skip
    for name, value in properties.items():
        os.environ[CATALOG + name.upper()] = value
    catalog = load_catalog("lake", **properties)
    catalog.create_namespace("drawn")
    return catalog


def rows_of_iceberg(catalog):
    return catalog.load_table("drawn.shown").scan().to_arrow().to_pylist()


def rows_of_folders():
    """The rows of all days; a column that came later is null before."""
    columns, rows = DeltaTable("published").schema().to_arrow().names, []
    for file in Path(PARQUET).glob("date=*/*.parquet"):
        day = {"date": dt.date.fromisoformat(file.parent.name.partition("=")[2])}
        found = pq.read_table(file, partitioning=None).to_pylist()
        rows += [{name: (row | day).get(name) for name in columns} for row in found]
    return rows
