"""Drawn declarations at a vendor of their own, judged by a model that knows nothing of the product.

Further ones: `python -m tests.jobs.run.drawn FROM:TO`, or a single seed, with all that it prints.
"""

import pytest

from jobs.limits.store_url import LIMITS_URL, STATE_HOME
from jobs.process.spark_submit import SparkSubmit
from jobs.run.engines.engine import ENGINE, LOCAL
from tests.jobs.run.drawn.nights import VARIABLES, Night
from tests.support.program_here import in_this_session
from tests.support.variants import first_of


@pytest.mark.parametrize("seed", first_of(range(150), count=2))
def test_a_drawn_declaration_calls_pays_and_publishes_as_a_model_expects(
    seed, tmp_path, service, monkeypatch
):
    places = {STATE_HOME: f"{tmp_path}/state", LIMITS_URL: "off", ENGINE: LOCAL}
    for name, value in (places | VARIABLES).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(SparkSubmit, "started", in_this_session)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    night = Night(seed, service)
    night.play()
    assert night.faults == [], f"python -m tests.jobs.run.drawn {seed}"
