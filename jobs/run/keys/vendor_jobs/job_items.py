"""The items of a job, which are made as they are read."""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import pyarrow as pa

from jobs.declare.coroutine_lookup import Row
from jobs.declare.vendor_jobs import Item
from jobs.input.keys.arrow_keys import read_key_tuples

AT_ONCE = 1_000


def item_id(key: str) -> str:
    """Return the id of a key in every job: 22 characters of A-Z, a-z, 0-9, - and _."""
    digest = hashlib.blake2b(key.encode(), digest_size=16).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@dataclass(frozen=True)
class JobItems(Sequence[Item]):
    """The items of a job, in the order of its intent.

    Attributes:
        keys: The keys in the ledger's form, and a column for each name.
        names: Of the lookup's keys.
    """

    keys: pa.Table
    names: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.keys.num_rows)

    def __iter__(self) -> Iterator[Item]:
        for batch in self.keys.to_batches(max_chunksize=AT_ONCE):
            texts = batch.column(0).to_pylist()
            tuples = read_key_tuples(batch, self.keys.column_names[1:])
            for text, key in zip(texts, tuples, strict=True):
                yield Item(item_id(text), Row(dict(zip(self.names, key, strict=True))))

    @overload
    def __getitem__(self, place: int) -> Item: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Item]: ...

    def __getitem__(self, place: int | slice) -> Item | Sequence[Item]:
        places = range(len(self))[place]
        if isinstance(places, int):
            return next(iter(JobItems(self.keys.slice(places, 1), self.names)))
        return JobItems(self.keys.take(pa.array(places, pa.int64())), self.names)
