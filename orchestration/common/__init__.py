"""Deadlines, modes and states of days, for every orchestrator. Does not import Dagster."""
