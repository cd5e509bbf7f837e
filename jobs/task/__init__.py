"""The code of a Spark task: threads, operators, time limits, output files."""
