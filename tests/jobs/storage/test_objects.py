"""Objects of a store are read and written with the credentials that its tools use, and its refusals
are sentences.
"""

import os
import random
import socket
import subprocess
import sys
import types
import urllib.parse
import urllib.request

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from obstore.store import LocalStore

from jobs.errors import DeclarationError, RunStopped
from jobs.input.day import files_in
from jobs.ledger.answers import StoredAnswer
from jobs.ledger.store import LedgerFolder
from jobs.storage import objects, stored_files
from jobs.tables.delta.delta_log import table_at
from jobs.tables.leases.day_leases import leased
from tests.support.s3_server import OTHER, S3Server
from tidegate import Input


class OnceRead:
    """A result of obstore up to 0.6, which forgets its metadata once its content is read."""

    def __init__(self, found):
        self.found, self.is_read = found, False

    @property
    def meta(self):
        if self.is_read:
            raise ValueError("Result has already been disposed.")
        return self.found.meta

    def bytes(self):
        self.is_read = True
        return self.found.bytes()


def test_an_object_has_its_tag_also_with_old_versions_of_obstore(tmp_path, monkeypatch):
    store = LocalStore(tmp_path)
    store.put("a.json", b"{}")
    old = types.SimpleNamespace(get=lambda name: OnceRead(store.get(name)))
    monkeypatch.setattr(objects, "_opened", lambda place: (old, place))
    read = objects.read("a.json")
    assert (read.data, read.tag["e_tag"]) == (b"{}", store.head("a.json")["e_tag"])
    assert objects.small_content("a.json", 2) == b"{}"


def test_the_credentials_of_a_profile_are_used(s3, tmp_path, monkeypatch):
    (tmp_path / "credentials").write_text(
        "[team]\naws_access_key_id = key\naws_secret_access_key = secret\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "team")
    # deltalake reads no profile for an endpoint of one's own
    monkeypatch.setenv("AWS_FORCE_CREDENTIAL_LOAD", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    objects._store.cache_clear()
    objects.write(f"{s3.bucket}/orders/a.json", b"{}")
    assert objects.read(f"{s3.bucket}/orders/a.json").data == b"{}"
    assert [listed.name for listed in objects.listed(f"{s3.bucket}/orders")] == ["a.json"]
    write_deltalake(f"{s3.bucket}/table", pa.table({"k": [1]}))
    assert table_at(f"{s3.bucket}/table").version() == 0


def test_a_ledger_is_read_with_the_credentials_file(s3, tmp_path, monkeypatch):
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = key\naws_secret_access_key = secret\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    stored_files._filesystem.cache_clear()
    folder = LedgerFolder(f"{s3.bucket}/ledger", "weather", "f")
    part = folder.write_part("run", "0", [StoredAnswer("k", "ok", b"1", 1, "run")])
    assert folder.read_part(part)["key"].to_pylist() == ["k"]
    folder.delete(f"parts/{part}")
    assert folder.names() == []


# Each module of obstore is found so late that all threads begin while it is being loaded.
AT_ONCE = """
import sys, threading, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        time.sleep(0.01 * name.startswith("obstore"))

sys.meta_path.insert(0, Slow())
from jobs.storage import objects

def open_late(ms):
    time.sleep(ms / 1000)
    store, _ = objects._opened("s3://bucket/x")
    type(store).get.__globals__["obs"].get

threads = [threading.Thread(target=open_late, args=(ms,)) for ms in range(300)]
for thread in threads:
    thread.start()
"""


@pytest.mark.proof
@pytest.mark.process
@pytest.mark.parametrize("turn", range(5))  # a half loaded module was seen in every second turn
def test_threads_that_are_the_first_to_use_a_store_all_can_use_it(turn):
    region = {"AWS_REGION": "us-east-1"}
    done = subprocess.run(
        [sys.executable, "-c", AT_ONCE],
        capture_output=True, text=True, check=False, env=os.environ | region,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_object_does_not_stop_the_deletion_of_others(tmp_path, monkeypatch):
    """In a folder, which is deleted from one by one, as a bucket of Google Cloud."""
    monkeypatch.setattr(objects, "_store", lambda _bucket: LocalStore(tmp_path))
    for name in ("b", "c"):
        objects.write(f"gs://lake/runs/{name}", b"")
    objects.delete("gs://lake/runs", ["a", "b", "c"])
    assert objects.listed("gs://lake/runs") == []


@pytest.mark.process
@pytest.mark.parametrize("code", ["AccessDenied", "InvalidAccessKeyId", "ExpiredToken"])
def test_a_store_that_refuses_the_credentials_is_reported_before_any_call(monkeypatch, code):
    with S3Server.refusing(403, code, "not you") as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        objects._store.cache_clear()
        with pytest.raises(DeclarationError) as refused:
            leased("s3://bucket/orders", "2026-01-01", "r1").__enter__()
    assert str(refused.value) == (
        f"output: s3://bucket/orders cannot be written: {code}: not you. Nothing was called."
    )


@pytest.mark.process
def test_an_unreachable_store_of_table_or_input_stops_a_run_as_an_outage(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    for name, value in {
        "AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "key", "AWS_ALLOW_HTTP": "true",
        "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    objects._store.cache_clear()
    stored_files._filesystem.cache_clear()
    with pytest.raises(RunStopped, match="output: s3://bucket/orders cannot be written: "):
        leased("s3://bucket/orders", "2026-01-01", "r1").__enter__()
    with pytest.raises(RunStopped, match="input: s3://bucket/raw/date=2026-01-01 cannot be listed"):
        files_in(Input(path="s3://bucket/raw"), "2026-01-01")


PIECES = (
    "a",
    "b.json",
    "..",
    ".",
    "",
    "\x1b[31m",
    "\x7f",
    "é",
    " ",
    "%2e%2e",
    "*",
    "x" * 250,
    "\\",
    "\u202e",
    "?",
    "#",
)


def put(place, data=b"{}"):
    """Write an object as any S3 client may, under any name. place: s3://bucket/name."""
    bucket, _, name = place.removeprefix("s3://").partition("/")
    url = f"{os.environ['AWS_ENDPOINT_URL']}/{bucket}/{urllib.parse.quote(name)}"
    urllib.request.urlopen(urllib.request.Request(url, method="PUT", data=data), timeout=30).close()


@pytest.mark.skipif(OTHER in os.environ, reason="Another server takes signed requests only.")
@pytest.mark.process
@pytest.mark.parametrize("folders", [6, pytest.param(200, marks=pytest.mark.proof)])
def test_an_object_of_any_name_hides_no_other_object_from_a_listing(s3, folders):
    draw = random.Random(7)
    for number in range(folders):
        folder = f"{s3.bucket}/odd/{number}"
        ours = {f"2013-01-{day:02}/run.json" for day in range(1, 4)}
        odd = {"/".join(draw.choices(PIECES, k=draw.randrange(1, 4))) for _ in range(4)}
        for name in ours | odd:
            put(f"{folder}/{name}")
        found = objects.listed(folder)
        assert ours <= {listed.name for listed in found}, odd
        assert all(
            objects.read(f"{folder}/{listed.name}")
            for listed in found
            if f"{listed.name}/" not in odd
        ), odd
