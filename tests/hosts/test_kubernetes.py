"""Days on Kubernetes: Spark's client, an API server of the tests, pods in hosts that share only the
store.
"""

import time

import pytest

from tests.hosts.judge import check_rows, repeats_allowed, see
from tests.hosts.kubernetes import Cluster, image
from tests.hosts.lab import LIMIT, VENDOR

pytestmark = [pytest.mark.hosts, pytest.mark.proof]

ENDS_WITHIN = 900.0  # s
KEY = "vendor-key-8c1f"  # a secret of the vendor's, in the address that only executors need
CONF = (
    "spark.executor.instances=2",
    "spark.executor.cores=1",
    "spark.executor.memory=1g",
    "spark.kubernetes.namespace=default",
    "spark.kubernetes.container.image=tidegate",
    "spark.kubernetes.executor.secretKeyRef.CREDIT_URL=vendor:url",
    "spark.kubernetes.executor.request.cores=100m",
    "spark.driver.host=driver",
)


@pytest.fixture
def kubernetes(make_lab):
    """The lab and its cluster; executors get the vendor's address as a secret."""
    made = []

    def start(**options):
        lab = make_lab(shared=False, standalone=False, **options)
        nodes = {name: lab[name] for name in ("w1", "w2")}
        variables = image(
            {name: value for name, value in lab.environment.items() if name != "CREDIT_URL"}
        )
        made.append(Cluster(lab["store"], nodes, variables, {"vendor": {"url": f"{VENDOR}/{KEY}"}}))
        return lab, made[-1]

    yield start
    for cluster in made:
        cluster.close()


def start_run(lab, cluster):
    settings = [word for setting in CONF for word in ("--conf", setting)]
    return lab.start_run(
        *settings, TIDEGATE_SPARK_MASTER=cluster.url,
        PYSPARK_PYTHON=lab.environment["PYSPARK_PYTHON"], CREDIT_URL=f"{VENDOR}/{KEY}",
    )  # fmt: skip


def check_secret(lab, cluster):
    """The secret stands in no object that was posted, and in no log of a pod or of the run."""
    texts = [
        *cluster.objects.written,
        lab.log(),
        *(log.read_text() for log in lab.folder.glob("w*.log")),
    ]
    assert len(cluster.objects.written) >= 3, "the executors' settings and two pods"
    assert [text for text in texts if KEY in text] == []


def test_a_day_is_published_by_pods_that_share_only_the_store(kubernetes):
    lab, cluster = kubernetes(latency=0.05)
    lab.make_orders([300, 300], 600)
    run = start_run(lab, cluster)
    assert run.wait(ENDS_WITHIN) == 0, lab.log()[-4000:]
    check_rows(lab, 600)
    seen = see(lab)
    assert (seen.calls, seen.repeated) == (600, 0)
    assert {call["from"] for call in lab.calls()} == {lab["w1"].address, lab["w2"].address}
    check_secret(lab, cluster)
    assert cluster.pods() == {}


def test_an_evicted_pod_repeats_only_calls_in_flight(kubernetes):
    latency, rows = 0.3, 2000
    lab, cluster = kubernetes(latency=latency)
    lab.make_orders([rows // 2, rows - rows // 2], rows)
    run = start_run(lab, cluster)
    lab.wait_for_calls(400, run)
    evicted = min(cluster.pods())
    fault_at = time.time()
    cluster.evict(evicted)
    assert run.wait(ENDS_WITHIN) == 0, lab.log()[-4000:]
    check_rows(lab, rows)
    seen = see(lab, fault_at, latency=latency)
    print(f"\n{rows} rows, {seen}")
    assert seen.most <= LIMIT
    assert seen.repeated <= repeats_allowed(latency)
    check_secret(lab, cluster)
