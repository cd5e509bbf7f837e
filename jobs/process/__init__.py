"""The program as a process: the life of a day, spark-submit, and the guard over it."""
