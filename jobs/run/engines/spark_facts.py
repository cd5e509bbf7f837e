"""Reads settings, slots and partitions from Spark; over Spark Connect also by a small job."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from jobs.run.engines.local_master import LOOPBACK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def is_remote(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def setting(spark: SparkSession, name: str, default: str = "") -> str:
    """Return a setting of the application's start; over Spark Connect, of the session too."""
    if is_remote(spark):
        return spark.conf.get(name, None) or default
    return str(spark.sparkContext._conf.get(name, default))  # noqa: SLF001  # getConf() copies every setting


def count_slots(spark: SparkSession) -> int:
    """Return the number of tasks that run at once, as far as Spark knows."""
    if not is_remote(spark):
        return int(spark.sparkContext.defaultParallelism)
    return _partitions_by_job(spark.range(1 << 16))


def count_partitions(frame: DataFrame) -> int:
    """Count a frame's partitions; over Spark Connect, by a job that counts those with rows."""
    if is_remote(frame.sparkSession):
        return _partitions_by_job(frame)
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())  # noqa: SLF001  # .rdd plans it a second time


def _partitions_by_job(frame: DataFrame) -> int:
    from pyspark.sql.functions import spark_partition_id  # a definition loads without Spark

    return frame.select(spark_partition_id()).distinct().count()


def hosts_for_tasks(spark: SparkSession) -> tuple[str, str]:
    """Return the name under which tasks reach this process, and the address to listen on."""
    if is_remote(spark):
        host = _own_address(str(spark.client.host))
        return host, host
    if setting(spark, "spark.master").startswith("local"):
        return LOOPBACK, LOOPBACK
    host = _without_brackets(setting(spark, "spark.driver.host", LOOPBACK))
    return host, host if host == LOOPBACK else _without_brackets(
        setting(spark, "spark.driver.bindAddress", host)
    )


def _without_brackets(host: str) -> str:
    """Remove the brackets in which Spark writes an IPv6 address, [fd00::1]."""
    return host.removeprefix("[").removesuffix("]")


def _own_address(server: str) -> str:
    """Return this machine's address on the route to a server. Sends no packet."""
    family, kind, _, _, address = socket.getaddrinfo(
        _without_brackets(server), 9, type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind) as way:
        way.connect(address)
        return str(way.getsockname()[0])
