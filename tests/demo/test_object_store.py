"""The demo with its tables on an object store, and the variable that asks for it."""

import pytest

from demo.object_store import VARIABLE, run_on_store
from tests.demo.test_run import demo


def test_a_store_that_the_demo_does_not_know_is_refused(monkeypatch):
    monkeypatch.setenv(VARIABLE, "floppy")
    with pytest.raises(RuntimeError, match="TIDEGATE_DEMO_STORE is 'floppy'; it must be s3"):
        run_on_store([])


@pytest.mark.spark
@pytest.mark.proof
def test_the_demo_on_a_store_ends_as_on_a_disk(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "s3")
    done = demo(tmp_path, "--days", "2013-01-10,2013-01-12")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "2013-01-10  run again: 0 calls" in done.stdout
    assert "s3://tidegate-demo/published/flights_enriched" in done.stdout
    assert not (tmp_path / "data" / "published").exists()
