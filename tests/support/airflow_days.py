"""Runs days as `airflow dags test` does, one after the other in one process of Airflow's own
Python.

    python airflow_days.py DAG_FILE '[["towns", {"day": "2026-01-01"}], ...]' '["2026-01-01", ...]'

Prints a JSON object for each: the task's state, its tries and its events. Then the deadline of a
run of each of the days, as the scheduler finds it when it makes the run.
"""

import datetime as dt
import importlib.util
import json
import sys

from airflow.models import DagRun, Pool, TaskInstance
from airflow.models.asset import AssetEvent, AssetModel
from airflow.serialization.decoders import decode_deadline_reference
from airflow.serialization.encoders import encode_deadline_reference
from airflow.utils.session import create_session
from sqlalchemy import select


def main(dag_file, runs, days):
    spec = importlib.util.spec_from_file_location("enrichments", dag_file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    Pool.create_or_update_pool("spark", slots=1, description="", include_deferred=False)
    first = dt.datetime.now(dt.UTC)
    for number, (dag, conf) in enumerate(json.loads(runs)):
        run = getattr(module, dag).test(
            logical_date=first + dt.timedelta(seconds=number), run_conf=conf
        )
        with create_session() as session:
            (task,) = session.scalars(select(TaskInstance).where(TaskInstance.run_id == run.run_id))
            found = session.execute(
                select(AssetModel.name, AssetEvent.partition_key, AssetEvent.extra)
                .join(AssetModel, AssetModel.id == AssetEvent.asset_id)
                .where(AssetEvent.source_run_id == run.run_id)
            )
            events = {name: [day, extra] for name, day, extra in found}
            say({"state": task.state, "tries": task.try_number, "events": events})
    say({day: deadline(run, day) for day in json.loads(days)})


def say(result):
    """Write a result at once, in a line: Airflow's threads print too, and between two writes."""
    sys.stdout.write(f"\nRESULT {json.dumps(result)}\n")


def deadline(run, day):
    """By way of what is stored of the DAG, and of the plugin: the scheduler does not load the DAG's
    file.
    """
    import tidegate_airflow  # found once Airflow is loaded, which knows its folder of plugins

    stored = json.loads(
        json.dumps(encode_deadline_reference(tidegate_airflow.PublishBy("06:30", "Etc/GMT+5")))
    )
    with create_session() as session:
        session.scalar(select(DagRun).where(DagRun.run_id == run.run_id)).partition_key = day
        session.flush()
        found = decode_deadline_reference(stored).evaluate_with(
            session=session, interval=dt.timedelta(0), dag_id=run.dag_id, run_id=run.run_id
        )
        session.rollback()
    return found and found.isoformat()


if __name__ == "__main__":
    main(*sys.argv[1:])
