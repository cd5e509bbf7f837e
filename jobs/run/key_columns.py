"""The columns of a day's distinct keys, whoever finds them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it

if TYPE_CHECKING:
    from pyspark.sql import Column

TEXT = "__key_text"  # string: the key as the ledger writes it
ROWS = "__key_rows"  # long: rows of the day that have it
HASH = "__key_hash"  # long: the same for equal keys of equal types in every run
TASK = "__key_task"  # int: the Spark partition that reads the row SOURCE_FILE, SOURCE_ROW

Hashes = npt.NDArray[np.int64]


def is_whole(names: Sequence[str]) -> Column:
    """No part of the key is null."""
    return functools.reduce(operator.and_, (F.col(name).isNotNull() for name in names))
