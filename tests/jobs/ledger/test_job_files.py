"""The files of a lookup's jobs and their lock, in a folder and on a store."""

import pyarrow as pa
import pytest

from jobs.errors import LedgerError
from jobs.ledger.job_files import KEY, Intent, JobFiles
from jobs.ledger.store import LedgerFolder
from tests.support.places import everywhere, place_of


@pytest.fixture
def files(tmp_path, request):
    return JobFiles(LedgerFolder(place_of(request, str(tmp_path)), "labels", "f" * 16))


@everywhere("files")
def test_a_run_that_waits_for_the_lock_of_the_jobs_ends_in_a_clear_error(files):
    words = (
        r"^ledger '.*': the lock of its jobs cannot be held: .* has held .*lock for 0 s.*\. Nothing"
    )
    with files.locked(), pytest.raises(LedgerError, match=words), files.locked(wait=0):
        pass


@everywhere("files")
def test_an_error_of_the_code_under_the_jobs_lock_is_not_reported_as_an_error_of_the_lock(files):
    with pytest.raises(OSError, match=r"^a full disk$"), files.locked():
        raise OSError("a full disk")
    with files.locked(wait=0):
        pass


@everywhere("files")
def test_forgetting_a_key_rewrites_only_the_jobs_that_have_it(files):
    for token in ("first", "second"):
        files.write_intent(token, Intent(pa.table({KEY: [f'["{token}"]']}), "run", 0.0))
    assert files.erase(pa.array(['["first"]'])) == 1
    assert (files.intent("first").items, files.intent("second").erased) == (1, 0)
    assert files.erase(pa.array(['["first"]'])) == 0


@everywhere("files")
def test_forgetting_a_key_passes_over_jobs_whose_intent_a_power_cut_took(files):
    files.write_intent("kept", Intent(pa.table({KEY: ['["a"]']}), "run", 0.0))
    files.finish("ended", {"state": "never sent"})
    assert files.erase(pa.array(['["a"]'])) == 1
