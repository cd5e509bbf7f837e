"""`tidegate init`: a new project is never WRONG, and its `.env` is read as others read it."""

import contextlib
import importlib.util
import os
import random
import re
import resource
import sys
from decimal import Decimal
from io import StringIO
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from dotenv import dotenv_values

import tidegate
from jobs.errors import DeclarationError
from tests.support.free_ports import free_port
from tidegate.__main__ import main
from tidegate.env_file import read_env_file


@pytest.mark.usefixtures("modules_of_others")
@pytest.mark.parametrize("kind", [[], ["--with", "model"]])
def test_check_finds_nothing_wrong_in_a_new_project(tmp_path, monkeypatch, capsys, kind):
    monkeypatch.chdir(tmp_path)
    assert main(["init", *kind, "shop"]) == 0
    monkeypatch.chdir(tmp_path / "shop")
    monkeypatch.delenv("TIDEGATE_LIMITS_URL", raising=False)
    nobody = f"http://127.0.0.1:{free_port()}"  # another program may listen at the template's
    urls = {"CREDIT_URL": nobody, "MODEL_URL": nobody}
    monkeypatch.setattr(os, "environ", dict(os.environ) | urls)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "shop"), *sys.path])
    assert main(["check"]) == 3  # nothing listens
    said = capsys.readouterr().out
    assert "STOPS" in said
    assert "WRONG" not in said


@pytest.mark.parametrize(
    ("kind", "service", "variable"),
    [
        ("template", "credit_service", "CREDIT_URL"),
        ("template_model", "model_service", "MODEL_URL"),
    ],
)
def test_the_stand_in_of_make_ui_is_where_dagster_finds_it(
    tmp_path, monkeypatch, kind, service, variable
):
    """Dagster takes the values of `.env`, whatever is set."""
    folder = Path(tidegate.__file__).parent / kind
    spec = importlib.util.spec_from_file_location("sample", folder / "sample.py")
    sample = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sample)
    ports = []

    @contextlib.contextmanager
    def serve(port=0):
        ports.append(port)
        yield SimpleNamespace(url="", invoice=Decimal(0))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sample, service, serve)
    monkeypatch.setattr(sample.subprocess, "Popen", MagicMock())
    for arguments in (["ui"], ["plan"]):
        sample.main(arguments)
    address = dotenv_values(folder / "env")[variable]
    assert (address, ports[1]) == (f"http://127.0.0.1:{ports[0]}", 0)


@pytest.mark.parametrize("renames", [0, 1])
def test_a_killed_init_leaves_a_project_that_says_what_to_delete(
    tmp_path, monkeypatch, capsys, renames
):
    monkeypatch.chdir(tmp_path)
    project, done = tmp_path / "shop", []
    rename = Path.rename

    def killed(path, target):
        if len(done) == renames:
            copytree(project, tmp_path / "killed")
        done.append(path)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", killed)
    assert main(["init", "shop"]) == 0
    assert main(["init", "killed"]) == 2
    assert capsys.readouterr().err == (
        "killed has part of a project, of an init that was killed or is still at work. Delete all that "
        "is in it, then repeat this command.\n"
    )


@pytest.mark.parametrize("exists", [False, True])
def test_a_failed_init_is_repaired_by_the_same_command(tmp_path, monkeypatch, capsys, exists):
    monkeypatch.chdir(tmp_path)
    if exists:
        (tmp_path / "shop").mkdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))  # larger files cannot be written
    try:
        assert main(["init", "shop"]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "run the same command again" in capsys.readouterr().err
    assert main(["init", "shop"]) == 0
    assert (tmp_path / "shop" / "enrichments" / "orders.py").exists()
    assert not [*(tmp_path / "shop").glob(".tmp*")]


def test_a_new_project_replaces_no_file_and_no_link(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("file", "link"):
        assert main(["init", name]) == 2
        assert capsys.readouterr().err == (
            f"{name} is not a folder; name an empty folder, or a path that does not exist.\n"
        )
    assert (tmp_path / "file").read_text() == "mine"


def test_the_printed_next_step_of_a_new_project_can_be_pasted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "my work/shop"]) == 0
    assert capsys.readouterr().out.endswith("Next: cd 'my work/shop' && make demo\n")


QUOTED_NAME = re.compile(r"\s*(export\s+)?'")
PIECES = ["a", "B_1", " ", "  ", "=", "#", "'", '"', "é", ":", "/", "\t"]


@pytest.mark.parametrize("rounds", [300, pytest.param(10_000, marks=pytest.mark.proof)])
def test_env_files_are_read_as_dotenv_reads_them(tmp_path, monkeypatch, rounds):
    draw = random.Random(5)
    for _ in range(rounds):
        line = "".join(draw.choices(PIECES, k=draw.randrange(9)))
        written = draw.choice(["X=", "export X=", " X = ", ""]) + line
        if QUOTED_NAME.match(written):  # no form of a shell
            continue
        (tmp_path / ".env").write_text(f"{written}\n")
        theirs = dotenv_values(stream=StringIO(f"{written}\n"), interpolate=False)
        monkeypatch.setattr(os, "environ", {})
        read_env_file(tmp_path)
        kept = {
            k: v
            for k, v in theirs.items()
            if v is not None and re.fullmatch(r"[A-Za-z_]\w*", k, re.ASCII)
        }
        assert os.environ == kept, written


def test_an_env_file_that_is_not_utf_8_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / ".env").write_text("CREDIT_URL=http://127.0.0.1:8099\n", encoding="utf-16")
    monkeypatch.chdir(tmp_path)
    assert main(["check"]) == 2
    assert capsys.readouterr().err.startswith(".env is not UTF-8, so no variable is read: ")


def test_an_env_file_with_a_byte_order_mark_before_a_variable_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    (tmp_path / ".env").write_text("# of ours\r\nCREDIT_URL=x\r\n", encoding="utf-8-sig")
    read_env_file(tmp_path)
    assert os.environ == {"CREDIT_URL": "x"}
    (tmp_path / ".env").write_text("CREDIT_URL=x\r\n", encoding="utf-8-sig")
    with pytest.raises(DeclarationError, match=r"^\.env begins with a byte order mark"):
        read_env_file(tmp_path)


def test_a_variable_that_is_already_set_keeps_its_value(tmp_path, monkeypatch):
    (tmp_path / ".env").write_text("CREDIT_URL=http://127.0.0.1:8099\n")
    monkeypatch.setattr(os, "environ", {"CREDIT_URL": "http://credit"})
    read_env_file(tmp_path)
    assert os.environ == {"CREDIT_URL": "http://credit"}
