"""What runs the tasks of a run: Spark, or this process."""
