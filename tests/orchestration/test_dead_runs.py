"""A run whose process is gone ends by itself and gives its slot back; one that lives is
left alone.
"""

import multiprocessing
import os
import signal
import socket
import subprocess
import threading
import time
from types import SimpleNamespace

import dagster as dg
import pytest
from dagster import DagsterRunStatus
from dagster._core.executor.base import Executor
from dagster._core.test_utils import create_run_for_test

from enrichments.flights import flights
from jobs.process.process_guard import die_with_parent
from orchestration.common.states import CRASHED
from orchestration.dagster.assets.day_step import interruption
from orchestration.dagster.declared import Declared
from orchestration.dagster.definitions import build_definitions
from orchestration.dagster.resources import SparkProgram
from orchestration.dagster.sensors.dead_runs import (
    STARTED_BY,
    SigningExecutor,
    identity,
    sign,
    signing_executor,
)
from orchestration.dagster.sensors.reports_days import reports_days


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def started(instance, tags: dict[str, str]) -> dg.DagsterRun:
    return create_run_for_test(
        instance, "flights_enriched_nightly", tags=tags, status=DagsterRunStatus.STARTED
    )


def looked(instance) -> str:
    """What the sensor says of one look."""
    return reports_days([])(dg.build_sensor_context(instance=instance)).skip_reason.skip_message


@pytest.mark.process
def test_a_killed_run_is_ended_and_its_slot_goes_to_the_next_run(instance):
    process = subprocess.Popen(["sleep", "600"])
    run = started(instance, {STARTED_BY: identity(process.pid)})
    slots = instance.event_log_storage
    slots.set_concurrency_slots("spark", 1)
    assert slots.claim_concurrency_slot("spark", run.run_id, "step").is_claimed
    assert looked(instance) == "Nothing new."
    process.kill()
    process.wait()
    assert looked(instance) == f"Ended: {run.run_id}."
    assert instance.get_run_by_id(run.run_id).status == DagsterRunStatus.FAILURE
    assert slots.claim_concurrency_slot("spark", "the next", "step").is_claimed


def test_runs_of_other_machines_and_runs_without_a_signature_are_not_ended(instance):
    elsewhere = started(instance, {STARTED_BY: f"elsewhere:{os.getpid()}:1"})
    unsigned = started(instance, {})
    assert looked(instance) == "Nothing new."
    sign(instance, unsigned)
    assert instance.get_run_by_id(unsigned.run_id).tags[STARTED_BY] == identity(os.getpid())
    assert not instance.get_run_by_id(elsewhere.run_id).is_finished


def test_a_run_is_signed_before_its_first_step(instance):
    signed = []

    class Steps(Executor):
        retries = None

        def execute(self, plan_context, execution_plan):
            signed.append(instance.get_run_by_id(plan_context.dagster_run.run_id).tags[STARTED_BY])
            return iter(())

    run = started(instance, {})
    executor = SigningExecutor(Steps())
    assert list(executor.execute(SimpleNamespace(instance=instance, dagster_run=run), None)) == []
    assert signed == [identity(os.getpid())]
    definitions = build_definitions(
        [Declared("a:flights", flights)], SparkProgram(), signing_executor
    )
    jobs = definitions.get_repository_def().get_all_jobs()
    assert {job.executor_def.name for job in jobs} == {signing_executor.name}


def test_the_retry_of_a_killed_run_is_not_ended_with_the_killed_run(instance):
    """Dagster gives it the tags of the first, that of the dead process among them."""
    dead = {STARTED_BY: f"{socket.gethostname()}:{os.getpid()}:1"}
    first = started(instance, dead)
    assert looked(instance) == f"Ended: {first.run_id}."
    second = create_run_for_test(
        instance, "flights_enriched_nightly", tags=dead, status=DagsterRunStatus.STARTED,
        parent_run_id=first.run_id, root_run_id=first.run_id,
    )  # fmt: skip
    assert looked(instance) == "Nothing new."
    sign(instance, second)
    assert looked(instance) == "Nothing new."
    instance.add_run_tags(second.run_id, {STARTED_BY: f"{socket.gethostname()}:{os.getpid()}:2"})
    assert looked(instance) == f"Ended: {second.run_id}."


SPAWN = multiprocessing.get_context("spawn")


def worker_of_a_run(said) -> None:
    """Starts a step, then is killed: the thread that started the step is gone before the others."""
    is_ready = SPAWN.Event()

    def start() -> None:
        SPAWN.Process(target=step_of_a_run, args=(said, is_ready)).start()
        is_ready.wait()

    for _ in range(4):
        threading.Thread(target=time.sleep, args=(600,)).start()
    starter = threading.Thread(target=start)
    starter.start()
    starter.join()
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


def step_of_a_run(said, is_ready) -> None:
    def interrupt(*_) -> None:
        raise dg.DagsterExecutionInterruptedError

    signal.signal(signal.SIGTERM, interrupt)
    die_with_parent()
    try:
        is_ready.set()
        time.sleep(600)
    except dg.DagsterExecutionInterruptedError:
        context = SimpleNamespace(run=SimpleNamespace(tags={}))
        said.send(interruption(context, Declared("a:flights", flights))[0])


@pytest.mark.process
def test_a_step_whose_worker_is_killed_names_no_person_who_cancelled_it():
    hears, said = SPAWN.Pipe(duplex=False)
    SPAWN.Process(target=worker_of_a_run, args=(said,)).start()
    assert hears.poll(600)
    assert hears.recv() == CRASHED
