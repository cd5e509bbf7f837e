"""A daemon of Python workers on a machine, which loads libraries before it forks workers.

Spark's daemon loads nothing: each worker compiles pyspark, whose archive has no bytecode, and loads
Arrow and pandas, which costs a second of CPU and 70 MB of memory. Here the workers share them.
"""

import gc
import os
import sys
from pathlib import Path


def prefer_compiled_spark() -> None:
    """Drop Spark's archive from Python's path where pip installed and compiled the same modules."""
    if str((spark := Path(os.environ.get("SPARK_HOME", ""))).parent) in sys.path:
        sys.path[:] = [
            path for path in sys.path if path != str(spark / "python" / "lib" / "pyspark.zip")
        ]


def load_libraries() -> None:
    """Load the libraries once for all workers.

    They start no threads but jemalloc's and OpenBLAS's, which prepare for a fork.
    """
    import numpy as np
    import pyarrow as pa
    import pyspark.worker  # noqa: F401

    from jobs.clients.http import http_client  # noqa: F401  # loaded by a task that calls only
    from jobs.task import output_files, runner  # noqa: F401

    pa.array(["warm"])  # the first imports pandas
    os.register_at_fork(after_in_child=np.random.seed)  # else all workers draw the same numbers
    gc.collect()
    gc.freeze()  # a worker's collections would look at them, and so copy them


if __name__ == "__main__":
    prefer_compiled_spark()
    load_libraries()
    from pyspark import daemon

    daemon.manager()
