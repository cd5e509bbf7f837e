"""Runs a function in a process of its own behind a proxy, which kills it at a request to
the store.
"""

import contextlib
import itertools
import multiprocessing
import os
import random
import signal

from tests.support.killing_proxy import KillingProxy

# by each process anew
LOADED_LATE = ["obstore", "obstore.store", "pandas", "pyarrow.dataset", "pyarrow.parquet"]

EVERY = int(os.environ.get("EVERY_REQUEST", "3"))


def requests_to_break():
    """The numbers of the requests at which a test breaks in: every third, from a drawn one. With
    EVERY_REQUEST=1 all, which takes three times as long.
    """
    first = random.randint(1, EVERY)
    print(f"every request of {EVERY}, from request {first}")
    return itertools.count(first, EVERY)


@contextlib.contextmanager
def behind_a_proxy(s3, *, preload):
    """Gives `run(function, *arguments, at=, served=)`, which returns whether the process sent so
    many requests. Without `served` it is not killed: the answer to the request is lost; with `cuts`
    the connection ends. preload: the module that has the functions.
    """
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([preload, *LOADED_LATE])
    with KillingProxy.running(s3.url) as proxy:
        environment = s3.environment(AWS_ENDPOINT_URL=proxy.url)

        def run(function, *arguments, at, served=None, cuts=False):
            process = processes.Process(
                target=_in_environment, args=(environment, function, arguments)
            )
            if served is None:
                proxy.lose_answer_of(at, cuts=cuts)
            else:
                proxy.kill_at(at, served=served)
            process.start()
            proxy.victim = process.pid
            process.join(60)
            assert process.exitcode == (
                0 if served is None or not proxy.reached else -signal.SIGKILL
            )
            return proxy.reached

        yield run


def _in_environment(environment, function, arguments):
    os.environ.update(environment)
    function(*arguments)
