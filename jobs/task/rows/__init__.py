"""Rows between Arrow batches and the operators."""
