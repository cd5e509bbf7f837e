"""Queries to databases."""
