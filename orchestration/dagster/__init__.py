"""Dagster: everything is made from the declarations."""
