"""The wheel, built from a copy of the checkout, and environments that it is unpacked in. Nothing is
downloaded.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.sources import PACKAGES, ROOT

BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", *PACKAGES, "tools")
SPARK_PROGRAMS = (
    "spark-submit",
    "spark-class",
    "find-spark-home",
    "find_spark_home.py",
    "load-spark-env.sh",
)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """Path of the wheel; of the one that WHEEL names, where it is set (`make wheel`)."""
    if built := os.environ.get("WHEEL"):
        return ROOT / built
    folder = tmp_path_factory.mktemp("wheel")
    for name in BUILT_FROM:
        source, target = ROOT / name, folder / name
        shutil.copytree(
            source, target, ignore=shutil.ignore_patterns("__pycache__")
        ) if source.is_dir() else (shutil.copyfile(source, target))
    code = "import setuptools.build_meta as build; build.build_wheel('dist')"
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True)
    (built,) = (folder / "dist").glob("*.whl")
    return built


def with_requirements(name, extras=()):
    """The distributions that one needs, with those that these need."""
    found, wanted = {}, [(name, tuple(extras))]
    while wanted:
        one, extras = wanted.pop()
        if one in found and not extras:
            continue
        try:
            requires = metadata.requires(one) or []
        except metadata.PackageNotFoundError:
            continue  # for another system
        found[one] = True
        for line in requires:
            told, _, condition = line.partition(";")
            extra = re.search(r"""extra\s*==\s*["'](\w+)["']""", condition)
            if extra is None or extra[1] in extras:
                match = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", told.strip())
                wanted.append((match[1], tuple(filter(None, (match[2] or "").split(",")))))
    return set(found)


@pytest.fixture(scope="session")
def environments(wheel, tmp_path_factory):
    """Makes an environment with the wheel and what some extras need, out of links to this one's
    packages.
    """

    def make(*extras):
        home = tmp_path_factory.mktemp("environment")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
        (site,) = home.glob("lib/python*/site-packages")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        for name in sorted(with_requirements("tidegate", extras) - {"tidegate"}):
            for file in metadata.files(name) or ():
                link, source = (
                    site / file.parts[0],
                    Path(metadata.distribution(name).locate_file(file.parts[0])),
                )
                if (
                    file.parts[0] not in ("..", "__pycache__")
                    and source.exists()
                    and not link.exists()
                ):
                    link.symlink_to(source)
        if {"spark", "dagster"} & set(extras):
            for program in SPARK_PROGRAMS:
                (home / "bin" / program).symlink_to(Path(sys.executable).parent / program)
        return SimpleNamespace(python=str(home / "bin" / "python"), site=site)

    return make
