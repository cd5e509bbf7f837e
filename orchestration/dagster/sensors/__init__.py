"""What Dagster looks at all the time: days to start, days to report, people to alert."""
