"""Lines of JSON in a packed body, as a store of files repeats them from an upload."""

import gzip
import io

import pyarrow as pa
import pytest

from jobs.clients.client import CallFailed
from jobs.clients.http.streamed_bodies import BodyFile, json_lines

TEXT = b"".join(b'{"id": %d}\n' % number for number in range(1_000))
PACKED = {
    "gzip": gzip.compress(TEXT),
    "zstd": pa.compress(TEXT, "zstd", asbytes=True),
    "brotli": pa.compress(TEXT, "brotli", asbytes=True),
}
DAMAGED = {
    "gzip with a damaged block": ("gzip", PACKED["gzip"][:10] + b"\xff" + PACKED["gzip"][11:]),
    **{f"{packing} that is cut": (packing, data[:-40]) for packing, data in PACKED.items()},
}


@pytest.mark.parametrize("packing", PACKED)
def test_packed_lines_are_read(packing):
    lines = json_lines(BodyFile(io.BytesIO(PACKED[packing]), True, packing))
    assert [line["id"] for line in lines] == [*range(1_000)]


@pytest.mark.parametrize("body", DAMAGED)
def test_damaged_packed_lines_break_off_and_may_be_read_again(body):
    packing, data = DAMAGED[body]
    with pytest.raises(CallFailed, match=r"^the answer broke off after [\d,]+ bytes: ") as error:
        list(json_lines(BodyFile(io.BytesIO(data), True, packing)))
    assert error.value.passing
