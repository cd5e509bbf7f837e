"""A server of Spark Connect of the tests' own on loopback."""

import contextlib
import os
import subprocess
import sys
import time

from jobs.process.spark_submit import find_script
from tests.support.free_ports import free_port

STARTS_WITHIN = 90  # s, on a machine that does ten things at once
PROGRAM = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextlib.contextmanager
def connect_server(log, *modules):
    """The address of a server with two slots, whose tasks import from these folders, as long as the
    context.
    """
    port = free_port()
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": port,
        "spark.ui.enabled": "false",
    }  # fmt: skip
    options = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    command = [
        find_script(),
        "--master",
        "local[2]",
        *options,
        "--class",
        PROGRAM,
    ]
    environment = {
        "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(map(str, modules)),
    }  # fmt: skip
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*command, "spark-internal"], env=os.environ | environment, stdout=output, stderr=output
        )
    try:
        until = time.monotonic() + STARTS_WITHIN
        while b"Spark Connect server started" not in log.read_bytes():
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()
