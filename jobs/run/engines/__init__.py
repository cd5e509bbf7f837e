"""The engines that run the tasks of a run: Spark, or this process."""
