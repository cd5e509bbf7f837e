"""The wheel in an environment of its own: what it brings, what it needs, and whose names it
takes.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from tests.support.sources import ROOT
from tools.wheel_names import with_inner_names

pytestmark = pytest.mark.process
DAY = "2026-11-19"
ORDERS = """
from tidegate import Enrichment, Env, HttpLookup, Input, Output, Service

rating = HttpLookup(
    name="rating",
    service=Service(name="credit", url=Env("CREDIT_URL"), max_concurrency=5),
    request="GET /{customer}",
    keys={"customer": "customer_id"},
    returns="grade STRING",
    timeout=5.0,
)
orders = Enrichment(
    name="orders_rated",
    input=Input(path="data/raw/orders", row_id=["order_id"]),
    lookups=[rating],
    output=Output(path="data/published/orders_rated"),
)
"""


# how Tidegate is built and measured: read in the repository
OF_THE_REPOSITORY = {"benchmarks.md", "design.md", "promises.md", "simulation.md"}
PAGES = [
    path for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in OF_THE_REPOSITORY
]
INNER = re.compile(
    r"\b(?:jobs|data_quality|orchestration|tools|tests|benchmarks|demo)[./]\w[\w./]*"
)
PARSERS = """
import json
from tidegate.__main__ import command_parser
from tidegate.commands import COMMANDS
print(json.dumps({name: sorted(command_parser(name)._option_string_actions) for name in COMMANDS}))
"""


@pytest.fixture(scope="module")
def lean(environments):
    return environments()


@pytest.fixture
def project(tmp_path, service):
    """A project of one enrichment, with a day of three rows; it has a module called `jobs`."""
    (tmp_path / "jobs.py").touch()
    (tmp_path / "enrichments").mkdir()
    (tmp_path / "enrichments" / "__init__.py").touch()
    (tmp_path / "enrichments" / "orders.py").write_text(ORDERS)
    raw = tmp_path / "data" / "raw" / "orders" / f"date={DAY}"
    raw.mkdir(parents=True)
    pq.write_table(
        pa.table({"order_id": [1, 2, 3], "customer_id": ["a", "b", "a"]}), raw / "part-0.parquet"
    )
    return tmp_path


async def grade(request):
    return web.json_response({"grade": "A"})


def tidegate(environment, project, *arguments, **variables):
    return python(environment, project, "-m", "tidegate", *arguments, **variables)


def python(environment, project, *arguments, **variables):
    return subprocess.run(
        [environment.python, *arguments],
        cwd=project, capture_output=True, text=True, check=False, env=os.environ | variables,
    )  # fmt: skip


def test_the_wheel_installs_two_top_level_names_and_no_demo(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {
        "tidegate",
        "asyncio_core",
    }
    assert {"tidegate/py.typed", "asyncio_core/py.typed"} <= names


def test_declarations_calls_and_reports_need_no_spark_dagster_or_great_expectations(
    lean, project, service
):
    service.answer = grade
    assert not [
        name for name in ("pyspark", "dagster", "great_expectations") if (lean.site / name).exists()
    ]
    asking = (("check",), ("try", "orders"), ("plan", "orders", "--day", DAY))
    looking = (("ls",), ("status",), ("show", "orders"), ("dead-letters", "orders"), ("costs",))
    in_turn = (
        "import sys; from tidegate.__main__ import main; "
        f"sys.exit(any([main(command) for command in {(*asking, *looking)}]))"
    )
    done = python(lean, project, "-c", in_turn, CREDIT_URL=service.url)
    assert (done.returncode, done.stderr) == (0, "")
    for command in (("show", "orders", DAY), ("diff", "orders", DAY)):
        done = tidegate(lean, project, *command)
        assert (done.returncode, done.stderr.partition(" ")[0]) == (2, "orders_rated:")
    done = tidegate(lean, project, "check", "--engine", "local", CREDIT_URL=service.url)
    assert "WRONG   the local engine needs PySpark; it is not" in done.stdout


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("run", "orders", "--day", DAY), "spark"),
        (("replay", "orders", "--day", DAY), "spark"),
        (("ui",), "dagster"),
    ],
)
def test_a_command_that_needs_an_extra_says_how_to_install_it(lean, project, command, extra):
    done = tidegate(lean, project, *command)
    called = {"spark": "PySpark", "dagster": "Dagster"}[extra]
    assert done.stderr == (
        f"tidegate {command[0]} needs {called}; it is not installed here: pip install "
        f'"tidegate[{extra}]".\n'
    )
    assert done.returncode == 2


def test_plan_says_that_an_expression_is_counted_by_spark(lean, project, service):
    path = project / "enrichments" / "orders.py"
    path.write_text(path.read_text().replace('"customer_id"}', '"reverse(customer_id)"}'))
    done = tidegate(lean, project, "plan", "orders", "--day", DAY, CREDIT_URL=service.url)
    assert done.stderr == (
        "tidegate plan orders_rated needs PySpark to count the keys; it is not installed here: "
        'pip install "tidegate[spark]".\n'
    )


def test_fingerprints_of_the_wheel_equal_those_of_the_checkout(lean, tmp_path):
    shutil.copy(ROOT / "tests" / "golden" / "declared" / "golden.py", tmp_path)
    code = (
        "from golden import towns, weather, order; from {jobs}.ledger.declared_folder import "
        "request_fingerprint as of; print(towns.fingerprint, of(weather), of(order))"
    )
    ways = ((sys.executable, "jobs"), (lean.python, "tidegate._jobs"))
    here, there = (
        subprocess.check_output([python, "-c", code.format(jobs=jobs)], text=True, cwd=tmp_path)
        for python, jobs in ways
    )
    assert here == there


def test_an_import_that_the_wheel_cannot_rename_is_refused():
    renamed = with_inner_names(
        "def f():\n    from jobs.declare.values.env import (\n        Env)\n"
    )
    assert renamed == (
        "def f():\n    from tidegate._jobs.declare.values.env import (\n        Env)\n"
    )
    with pytest.raises(ValueError, match="cannot be renamed"):
        with_inner_names("import jobs.schema\n")


# -- pages that a user of the wheel reads ----------------------------------------------------------
def sections(page):
    """The sections of a page that do not speak of the repository."""
    text = re.sub(r"\]\([^)]*\)", "]", page.read_text())  # links are other pages
    return [section for section in re.split(r"(?m)^#+ ", text) if "repository" not in section]


def commands(page):
    """The command lines of `tidegate` in the code of a page: the command and its options."""
    code = re.findall(r"(?m)^```(?:.|\n)*?^```|^    \S.*$|`[^`\n]+`", page.read_text())
    for line in "\n".join(code).replace("\\\n", "").splitlines():
        for command, rest in re.findall(r"(?<![\w./-])tidegate ([a-z][a-z-]*)\b([^`|;#]*)", line):
            if command != "import":
                yield line.strip(), command, set(re.findall(r"(?<!\S)--[a-z-]+", rest))


@pytest.fixture(scope="module")
def modules(wheel):
    """The names that each module of the wheel binds."""
    with zipfile.ZipFile(wheel) as archive:
        sources = {
            name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): archive.read(name)
            for name in archive.namelist()
            if name.endswith(".py")
        }
    return {name: set(bound(ast.parse(source))) for name, source in sources.items()}


def bound(tree):
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (
                name.id
                for target in targets
                for name in ast.walk(target)
                if isinstance(name, ast.Name)
            )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_for_users_marks_each_path_of_the_repository(page):
    assert [name for text in sections(page) for name in INNER.findall(text)] == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_the_wheel_has_each_name_that_a_page_imports(page, modules):
    for module, names in re.findall(
        r"(?m)^ *from ((?:tidegate|asyncio_core)(?:\.\w+)*) import ([\w, ]+)", page.read_text()
    ):
        missing = {name.strip() for name in names.split(",")} - modules.get(module, set())
        assert sorted(missing) == [], module


def test_an_installed_wheel_has_each_command_and_option_of_the_pages(lean):
    told = subprocess.run([lean.python, "-c", PARSERS], capture_output=True, text=True, check=True)
    known = {name: set(options) for name, options in json.loads(told.stdout).items()}
    wrong = [
        f"{page.name}: {line}"
        for page in [*PAGES, ROOT / "README.md"]
        for line, command, options in commands(page)
        if command not in known or options - known[command]
    ]
    assert wrong == []


def test_the_pages_install_the_wheel_that_is_built(wheel):
    pages = (ROOT / "README.md", ROOT / "docs/deploying.md", ROOT / "docs/cluster.md")
    named = [re.findall(r"\btidegate-[\w.]+-py3-none-any\.whl", page.read_text()) for page in pages]
    assert {name for names in named for name in names} == {wheel.name}
    assert all(named)
