"""The report: pages that open from a disk with no network, made of the records of runs."""

from data_quality.report.pages import render, require

__all__ = ["render", "require"]
