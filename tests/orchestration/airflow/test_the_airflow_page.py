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


def test_the_dag_files_of_the_airflow_page_load(tmp_path):
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(manifest_of(ROOT, "enrichments")))
    (tmp_path / "my_alerts.py").write_text("async def late(**context):\n    pass\n")
    first, after, late = blocks("docs/airflow.md", "python")
    script = f"{KEEP}{first}{after}{late}{TELL}".replace(
        "/opt/airflow/manifest.json", str(manifest)
    )
    assert printed_by(script, tmp_path, "dag ") == [
        "dag after_flights [] False",
        "dag flights_enriched ['day'] False",
        "dag flights_enriched ['day'] True",
    ]


INLETS = """
from tidegate_airflow import dags_of
for name, dag in dags_of({manifest!r}).items():
    print("inlets", name, [asset.name for asset in dag.get_task("day").inlets])
"""


def test_an_input_that_another_enrichment_publishes_is_the_asset_of_its_table(tmp_path):
    manifest = tmp_path / "manifest.json"
    content = manifest_of(ROOT, "enrichments")
    (flights,) = content["enrichments"]
    reader = {"name": "late_flights", "input": f"{flights['table']}/", "table": "file:///late"}
    content["enrichments"] = [flights | reader | {"summaries": {}}, flights]
    manifest.write_text(json.dumps(content))
    assert printed_by(INLETS.format(manifest=str(manifest)), tmp_path, "inlets ") == [
        "inlets late_flights ['flights_enriched']",
        f"inlets flights_enriched ['{flights['input']}']",
    ]
