"""Tasks of a run in threads of their own, without Spark: over real links to a real driver."""

import threading
import types

from jobs.task.link.driver_link import with_driver
from jobs.task.runner import PartitionRun


class TaskThreads:
    """The tasks of a plan that names its driver. found: their output. errors: of those that
    failed.
    """

    def __init__(self, plan, tasks):
        self.plan, self.tasks = plan, tasks
        self.found, self.errors, self.threads = [], [], []

    def task(self, number, batches):
        run = PartitionRun(self.plan, number, 0)
        context = types.SimpleNamespace(
            stageId=lambda: 7, partitionId=lambda: number, taskAttemptId=lambda: number
        )
        try:
            self.found += list(with_driver(run, batches, self.plan.driver, context))
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.errors.append(error)

    def start(self, batches):
        """batches: makes the input of a task, the same for each."""
        self.threads = [
            threading.Thread(target=self.task, args=(n, batches())) for n in range(self.tasks)
        ]
        for thread in self.threads:
            thread.start()

    def join(self):
        for thread in self.threads:
            thread.join()
