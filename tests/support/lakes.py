"""An Iceberg catalog for tests, which pyiceberg's configuration names `lake`."""

import contextlib

from pyiceberg.catalog import load_catalog


@contextlib.contextmanager
def lake_in(folder, warehouse, monkeypatch, **more):
    """A catalog in SQLite."""
    monkeypatch.chdir(folder)
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": str(warehouse),
    } | more
    for name, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper().replace('.', '__')}", value)
    catalog = load_catalog("lake", **properties)
    catalog.create_namespace("shop")
    yield catalog
    catalog.close()
