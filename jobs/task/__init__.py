"""What runs inside one Spark task: threads, operators, time limits, the files it writes."""
