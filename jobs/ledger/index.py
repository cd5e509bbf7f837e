"""The index file of a run: the answers that it needs, which each task maps and searches by key."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.ledger.answers import StoredAnswer, as_answers
from jobs.ledger.keyed_file import KeyedFile, write_keyed


def write_index(path: str, answers: pa.Table) -> None:
    """Write the answers (one per key, from `select`) to a path or URL. Raises LedgerError."""
    types = {"key": pa.large_string(), "response": pa.large_string()}
    columns = {
        name: answers[name].cast(types.get(name, answers[name].type))
        for name in answers.column_names
    }
    columns |= {name: answers[name].dictionary_encode() for name in ("outcome", "run_id")}
    write_keyed(path, pa.table(columns))


class AnswerIndex(KeyedFile):
    """The mapped file of `write_index`."""

    def answers(self, lines: npt.NDArray[np.int64]) -> list[StoredAnswer]:
        """Return the answers at these lines, in order."""
        return as_answers(pa.Table.from_batches([self.take(lines)]))
