"""Breaks the promises of asyncio_core one by one, in a copy, and shows which test notices.

    python tests/asyncio_core/plant_faults.py [name ...]

Each fault, in faults.toml, is one edit of the source. A fault that no test notices, or that no
longer fits the source, makes this fail: the first asks for a test, the second for a fault that does
the same to the new source.
"""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = Path("tests/asyncio_core")
SLOW = "test_operator_properties.py"  # asked only when the others have noticed nothing
PROFILE = "--hypothesis-profile=plant-faults"
SECONDS = 150  # a run of the tests that takes longer hangs, which is noticed too


@dataclass(frozen=True)
class Fault:
    """In `file`, `old`, which occurs once, becomes `new`."""

    promise: str
    file: str
    old: str
    new: str


FAULTS = {
    name: Fault(**fields)
    for name, fields in tomllib.loads((ROOT / TESTS / "faults.toml").read_text()).items()
}


def plant(fault: Fault, copy: Path) -> None:
    source = copy / "asyncio_core" / fault.file
    text = source.read_text()
    if text.count(fault.old) != 1:
        raise SystemExit(
            f"{fault.file} holds {text.count(fault.old)} times, not once:\n{fault.old}"
        )
    source.write_text(text.replace(fault.old, fault.new))


def noticed_by(copy: Path) -> str:
    """The first test that fails, or an empty string."""
    for arguments in ([f"--ignore={TESTS / SLOW}", str(TESTS)], [str(TESTS / SLOW)]):
        try:
            run = run_tests(copy, "-x", *arguments)
        except subprocess.TimeoutExpired:
            return f"(no end within {SECONDS} s)"
        if run.returncode == 1:
            failed = re.search(r"^(?:FAILED|ERROR) \S*?([^/\s]+::\S+)", run.stdout, re.MULTILINE)
            return failed[1] if failed else run.stdout[-300:]
        if run.returncode != 0:
            return f"(the tests do not even start: {(run.stdout + run.stderr)[-200:]})"
    return ""


def run_tests(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest over the copy, and nothing of the tree that it was made from."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", PROFILE, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command,
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def fresh_copy(folder: Path) -> Path:
    copy = Path(tempfile.mkdtemp(dir=folder))
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "asyncio_core", copy / "asyncio_core", ignore=unwanted)
    shutil.copytree(ROOT / TESTS, copy / TESTS, ignore=unwanted)
    shutil.copytree(ROOT / "tests" / "support", copy / "tests" / "support", ignore=unwanted)
    (copy / TESTS / "test_faults_fit.py").unlink()  # would notice every fault, by its text
    shutil.copytree(ROOT / "docs", copy / "docs")
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def planted(fault: Fault, folder: Path) -> str:
    copy = fresh_copy(folder)
    plant(fault, copy)
    return noticed_by(copy)


def main(names: list[str]) -> int:
    unnoticed = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(os.cpu_count()) as processes:
        folder = Path(name)
        if not names and (failure := noticed_by(fresh_copy(folder))):
            print(f"The tests fail without any fault: {failure}")
            return 1
        faults = [FAULTS[name] for name in names or FAULTS]
        tests = processes.map(planted, faults, itertools.repeat(folder))
        for fault_name, test in zip(names or FAULTS, tests, strict=True):
            print(
                f"{fault_name:32} {FAULTS[fault_name].promise:58} {test or 'NOTICED BY NO TEST'}",
                flush=True,
            )
            if not test:
                unnoticed.append(fault_name)
    print(
        f"{len(names or FAULTS)} faults, {len(unnoticed)} unnoticed, "
        f"{time.monotonic() - started:.0f} s"
    )
    return bool(unnoticed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
