"""Hosts in namespaces, for the tests that root may run."""

import pytest

from tests.hosts.lab import Lab
from tests.hosts.network import obstacle


@pytest.fixture
def make_lab(tmp_path):
    """Makes a lab with all services; it ends with the test. shared: whether the hosts share a
    folder for work; standalone: whether they run a standalone cluster of Spark.
    """
    if reason := obstacle():
        pytest.skip(reason)
    made = []

    def make(*, latency, store_latency=0.0, shared=False, standalone=True, **clocks_ahead):
        folder = tmp_path / "lab"
        (folder / "shared").mkdir(parents=True)
        lab = Lab(folder, shared=folder / "shared" if shared else None)
        made.append(lab)
        lab.__enter__()
        lab.start_store(store_latency)
        lab.start_vendor(latency)
        if standalone:
            lab.start_spark(**clocks_ahead)
        return lab

    yield make
    for lab in made:
        lab.__exit__()
