"""Variants of a test, most of which are proofs."""

import pytest


def first_of(variants, count=1):
    """The first variants for every run of the tests, and the others for `make proof`."""
    variants = [*variants]
    return [
        *variants[:count],
        *(pytest.param(variant, marks=pytest.mark.proof) for variant in variants[count:]),
    ]
