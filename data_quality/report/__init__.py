"""The report: pages built from run records, which open from a disk without a network."""

from data_quality.report.pages import render, require

__all__ = ["render", "require"]
