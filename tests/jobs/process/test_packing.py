"""`tidegate pack`: the zip for executors has the modules of the named packages, and nothing else
from their folders.
"""

import os
import random
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from jobs.errors import DeclarationError
from jobs.process.packing import package
from tidegate.__main__ import main

SECRET = "s3cret-that-must-not-travel"
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
FOLDERS = ("models", "sub", ".git", ".hidden", "site-packages", "v1.2", "__pycache__", "keys")
FILES = (
    *(
        "mod.py",
        "rates.py",
        "__init__.py",
        ".env",
        ".netrc",
        "id_rsa",
        "server.pem",
        "api.key",
        "prices.csv",
    ),
    *(
        "my-script.py",
        ".secret.py",
        "2nd.py",
        "mod.pyc",
        "mod.py~",
        "notes.txt",
        "config",
        "creds.json",
    ),
)


@pytest.fixture
def parcel(tmp_path, monkeypatch):
    """A package of the test, as `parcel` in the current folder."""
    (tmp_path / "here" / "parcel").mkdir(parents=True)
    (tmp_path / "here" / "parcel" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(str(tmp_path / "here"))
    return tmp_path / "here" / "parcel"


def names_in(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as archive:
        return {name for name in archive.namelist() if name.startswith("parcel")}


def test_a_zip_of_a_package_has_no_hidden_file_no_key_and_no_outside_link(parcel, tmp_path):
    (tmp_path / "outside.py").write_text(SECRET)
    for name in (
        ".env",
        "id_rsa",
        "server.pem",
        ".git/config",
        ".git/hooks/hook.py",
        "data/creds.json",
    ):
        (parcel / name).parent.mkdir(parents=True, exist_ok=True)
        (parcel / name).write_text(SECRET)
    (parcel / "linked.py").symlink_to(tmp_path / "outside.py")
    (parcel / "settings.py").symlink_to(parcel / ".env")
    (parcel / "more").symlink_to(tmp_path)
    (parcel / "rates.py").write_text("RATE = 1\n")
    (parcel / "alias.py").symlink_to(parcel / "rates.py")
    packed = package(tmp_path / "p.zip", ["parcel"])
    assert names_in(packed.zip) == {"parcel/__init__.py", "parcel/rates.py", "parcel/alias.py"}
    assert "parcel/linked.py" in packed.left_out
    assert "parcel/.env" in packed.left_out


def test_pack_names_the_files_that_it_leaves_out_and_includes_requested_files(parcel, capsys):
    for name in ("prices.csv", ".env", "deep/prices.csv"):
        (parcel / name).parent.mkdir(exist_ok=True)
        (parcel / name).write_text("a,b\n")
    assert main(["pack", "p.zip", "--package", "parcel"]) == 0
    assert (
        "3 files left out, because only modules are taken: parcel/.env" in capsys.readouterr().err
    )
    assert names_in(Path("p.zip")) == {"parcel/__init__.py"}
    assert main(["pack", "p.zip", "--package", "parcel", "--data", "*.csv", "--data", "*env*"]) == 0
    assert names_in(Path("p.zip")) == {
        "parcel/__init__.py",
        "parcel/prices.csv",
        "parcel/deep/prices.csv",
    }
    assert "1 file left out" in capsys.readouterr().err


def test_a_wrong_package_name_leaves_the_old_zip_and_no_draft(parcel):
    Path("p.zip").write_text("the old one")
    with pytest.raises(DeclarationError, match="is not a package or module"):
        package(Path("p.zip"), ["parcel", "nothing_like_this"])
    assert sorted(path.name for path in Path().iterdir()) == ["p.zip", "parcel"]
    assert Path("p.zip").read_text() == "the old one"


@pytest.mark.process
def test_another_interpreter_imports_the_packages_from_the_zip_alone(parcel, tmp_path):
    (parcel / "rates.py").write_text("import tidegate\nRATE = 7\n")
    packed = package(tmp_path / "p.zip", ["parcel"])
    look = (
        f"import sys; sys.path[0] = {str(packed.zip)!r}\nfrom parcel.rates import RATE, "
        "tidegate as t"
    )
    look += "\nprint(RATE, t.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", look], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["7", str(packed.zip / "tidegate/__init__.py")]


def grow(folder: Path, outside: Path, draw: random.Random, depth: int = 0) -> None:
    """A random tree of modules, data, hidden files, keys, and links into and out of it."""
    for name in draw.sample(FILES, draw.randrange(len(FILES))):
        path = folder / name
        if path.exists():
            continue
        if draw.random() < 0.3:
            inside = [path for path in folder.rglob("*") if path.is_file()]
            path.symlink_to(draw.choice([*outside.iterdir(), folder / "dangling", *inside]))
        else:
            path.write_text(SECRET)
    for name in draw.sample(FOLDERS, draw.randrange(4)) if depth < 3 else ():
        if draw.random() < 0.2:
            (folder / name).symlink_to(draw.choice([outside, folder]))
        else:
            (folder / name).mkdir()
            grow(folder / name, outside, draw, depth + 1)


def importable(package: Path) -> set[str]:
    """The judge: files of the tree whose names, and whose targets' names, Python can import; read
    with `find`.
    """
    listed = subprocess.run(
        ["find", str(package), "(", "-type", "f", "-o", "-type", "l", ")", "-printf", "%p\n"],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    root = os.path.realpath(package)
    found = set()
    for path in listed:
        target = os.path.realpath(path)
        if not Path(target).is_file() or not target.startswith(root + "/"):
            continue
        names = [os.path.relpath(path, package), os.path.relpath(target, root)]
        parts = [part for name in names for part in name.removesuffix(".py").split("/")]
        is_module = all(name.endswith(".py") for name in names) and all(
            map(IDENTIFIER.fullmatch, parts)
        )
        if is_module and "__pycache__" not in names[0]:
            found.add(f"parcel/{names[0]}")
    return found


@pytest.mark.parametrize("trees", [20, pytest.param(1_000, marks=pytest.mark.proof)])
@pytest.mark.process
def test_a_zip_of_a_random_tree_has_exactly_its_modules(parcel, tmp_path, trees, monkeypatch):
    monkeypatch.setattr("jobs.process.packing.NEEDED", ())  # they take the time
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("key.pem", "other.py", ".env"):
        (outside / name).write_text(SECRET)
    for seed in range(trees):
        subprocess.run(["rm", "-rf", str(parcel)], check=True)
        parcel.mkdir()
        (parcel / "__init__.py").touch()
        grow(parcel, outside, random.Random(seed))
        assert names_in(package(tmp_path / "p.zip", ["parcel"]).zip) == importable(parcel), seed
