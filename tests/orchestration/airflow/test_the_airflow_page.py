"""The DAG files of docs/airflow.md, as they stand there, in Airflow's environment."""

import json

import pytest

from tests.support.airflow_home import manifest_of, printed_by
from tests.support.documents import blocks
from tests.support.sources import ROOT

pytestmark = pytest.mark.process
KEEP = "import gc\n\ngc.disable()\n"  # a DAG whose name is used again stays
TELL = """
dags = [one for one in gc.get_objects() if isinstance(one, DAG)]
for name, has_deadline, tasks in sorted((one.dag_id, bool(one.deadline), one.task_ids) for one in dags):
    print("dag", name, tasks, has_deadline)
"""


INLETS = """
from tidegate_airflow import dags_of
for name, dag in dags_of({manifest!r}).items():
    print("inlets", name, [asset.name for asset in dag.get_task("day").inlets])
"""


@pytest.fixture(scope="module")
def manifest():
    return manifest_of(ROOT, "enrichments")


@pytest.fixture(scope="module")
def printed(tmp_path_factory, manifest):
    """Facts that Airflow prints about the DAGs of the page, and about the DAGs of another manifest."""
    home = tmp_path_factory.mktemp("page")
    path, of_a_reader = home / "manifest.json", home / "of_a_reader.json"
    path.write_text(json.dumps(manifest))
    (flights,) = manifest["enrichments"]
    reader = {"name": "late_flights", "input": f"{flights['table']}/", "table": "file:///late"}
    enrichments = [flights | reader | {"summaries": {}}, flights]
    of_a_reader.write_text(json.dumps(manifest | {"enrichments": enrichments}))
    (home / "my_alerts.py").write_text("async def late(**context):\n    pass\n")
    first, after, late = blocks("docs/airflow.md", "python")
    page = f"{KEEP}{first}{after}{late}{TELL}".replace("/opt/airflow/manifest.json", str(path))
    return printed_by(page + INLETS.format(manifest=str(of_a_reader)), home, ("dag ", "inlets "))


def test_the_dag_files_of_the_airflow_page_load(printed):
    assert [line for line in printed if line.startswith("dag ")] == [
        "dag after_flights [] False",
        "dag flights_enriched ['day'] False",
        "dag flights_enriched ['day'] True",
    ]


def test_an_input_that_another_enrichment_publishes_is_the_asset_of_its_table(manifest, printed):
    (flights,) = manifest["enrichments"]
    assert [line for line in printed if line.startswith("inlets ")] == [
        "inlets late_flights ['flights_enriched']",
        f"inlets flights_enriched ['{flights['input']}']",
    ]
