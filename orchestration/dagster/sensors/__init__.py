"""What Dagster looks at all the time: days that were stopped, inputs, deadlines, runs that died, alerts."""
