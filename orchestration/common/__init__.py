"""Deadlines, modes, states of a day and their sentences, for every orchestrator. Does not import
Dagster.
"""
