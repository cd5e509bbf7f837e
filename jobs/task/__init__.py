"""The code of one Spark task: threads, operators, time limits, output files."""
