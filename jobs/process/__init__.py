"""The processes of a program: the life of a day, spark-submit, and the guard over it."""
