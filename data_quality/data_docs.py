"""Great Expectations' own pages (Data Docs) of a judged day, for those who are used to them; made to open offline.

    python -m data_quality.data_docs data/runs/flights_enriched/2013-01-10/<run>.json [--folder data/data_docs]

judges the files of that run again and prints the path of the index. As shipped the pages load some eighteen files from
the internet and are empty without them; here every such address is taken out, a small stylesheet stands in, and the
index, which they draw by script, is written as a plain table.
"""

from __future__ import annotations

import argparse
import html
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_quality import answers, written
from data_quality.catalogue import checks
from data_quality.day import expectations_of, quiet
from data_quality.slow_imports import OF_GREAT_EXPECTATIONS, import_when_used
from jobs.schema import DayFacts, DayFigures, DayRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STYLE = "offline.css"
_SITE = Path("gx") / "uncommitted" / "data_docs" / "local_site"
_OUTSIDE = re.compile(
    r"""<script[^>]*\bsrc=["'](?:https?:)?//[^>]*>\s*</script>"""  # a script from outside
    r"""|<link[^>]*\bhref=["'](?:https?:)?//[^>]*>"""  # a stylesheet from outside
    r"""|<link[^>]*\brel=["']shortcut icon["'][^>]*>"""  # it points beside the site
    r"""|<footer.*?</footer>"""  # an invitation to a newsletter
    r"""|<img[^>]*\bsrc=["'](?:https?:)?//[^>]*>"""  # the logo, which counts visits
    r"""|<script(?![^>]*\bsrc=)[^>]*>.*?</script>""",  # inline scripts: they call the ones taken out
    re.IGNORECASE | re.DOTALL,
)
_CSS = """
body { font: 15px/1.5 system-ui, sans-serif; color: #20262e; margin: 0 auto; max-width: 1180px; padding: 20px; }
table { border-collapse: collapse; margin: 6px 0 18px; } td, th { border: 1px solid #e1e5ea; padding: 4px 10px; }
td, th { vertical-align: top; text-align: left; overflow-wrap: anywhere; }
a { color: #1f5fa8; } .badge { border-radius: 8px; padding: 1px 8px; background: #e1e5ea; }
.fa-check-circle::before, .text-success::before { content: "\\2713 "; color: #2a7f62; font-weight: bold; }
.fa-times::before, .text-danger::before { content: "\\2717 "; color: #b93a26; font-weight: bold; }
.fa-exclamation-triangle::before, .text-warning::before { content: "! "; color: #a86f00; font-weight: bold; }
.alert { border: 1px solid #e1e5ea; border-radius: 6px; padding: 8px 14px; } .alert-success { border-color: #2a7f62; }
.alert-danger { border-color: #b93a26; } .modal, .navbar, button, .sticky, footer { display: none; }
"""


def build(frame: DataFrame, facts: DayFacts, figures: DayFigures | None, folder: Path) -> Path:
    """Judge the frame in a file context under `folder`, make the pages, make them offline; returns the index.

    One at a time on a folder: Great Expectations rebuilds its pages in place.
    """
    import_when_used(*OF_GREAT_EXPECTATIONS)
    with quiet():
        import great_expectations as gx

        context = gx.get_context(mode="file", project_root_dir=str(folder))
        context.variables.progress_bars = {"globally": False, "metric_calculations": False}
        name = facts.declared.enrichment
        known = expectations_of(checks(facts.declared), facts, figures, answers.judge(frame, facts, None))
        expectations = [expectation for _, expectation in known if not isinstance(expectation, str)]
        source = context.data_sources.add_or_update_spark("spark", persist=False)
        asset = _added(source, "add_dataframe_asset", "get_asset", name)
        batch = _added(asset, "add_batch_definition_whole_dataframe", "get_batch_definition", "day")
        suite = context.suites.add_or_update(gx.ExpectationSuite(name=name, expectations=expectations))
        validation = gx.ValidationDefinition(name=name, data=batch, suite=suite)
        action = gx.checkpoint.UpdateDataDocsAction(name="pages")
        checkpoint = gx.Checkpoint(
            name=name,
            validation_definitions=[context.validation_definitions.add_or_update(validation)],
            actions=[action],
            result_format={"result_format": "SUMMARY", "partial_unexpected_count": 10},
        )
        context.checkpoints.add_or_update(checkpoint).run(
            batch_parameters={"dataframe": frame}, run_id=gx.RunIdentifier(run_name=facts.day)
        )
    return make_offline(folder / _SITE)


def _added(parent: Any, add: str, get: str, name: str) -> Any:
    try:
        return getattr(parent, get)(name)
    except (LookupError, KeyError):
        return getattr(parent, add)(name)


def make_offline(site: Path) -> Path:
    """Take every outside address out of the pages of a site and write a plain index; run it after each rebuild."""
    (site / STYLE).write_text(_CSS)
    for page in site.rglob("*.html"):
        up = "../" * (len(page.relative_to(site).parts) - 1)
        text = _OUTSIDE.sub("", page.read_text(encoding="utf-8"))
        text = re.sub(r"""\b(?:integrity|crossorigin)=["'][^"']*["']""", "", text)
        text = re.sub(r"""(src|href)=["'](?:https?:)?//[^"']*["']""", r'\1="#"', text)
        if f"{up}{STYLE}" not in text:
            text = text.replace("</head>", f'<link rel="stylesheet" href="{up}{STYLE}"></head>', 1)
        page.write_text(text, encoding="utf-8")
    index = site / "index.html"
    index.write_text(_index(site), encoding="utf-8")
    return index


def _index(site: Path) -> str:
    rows = []
    for page in sorted(site.glob("validations/**/*.html"), reverse=True):
        suite, run = page.relative_to(site).parts[1:3]
        result = "failed" if "Failed" in page.read_text(encoding="utf-8") else "succeeded"
        link = html.escape(page.relative_to(site).as_posix())
        rows.append(
            f'<tr><td><a href="{link}">{html.escape(run)}</a></td><td>{html.escape(suite)}</td><td>{result}</td></tr>'
        )
    head = f'<head><meta charset="utf-8"><title>Data Docs</title><link rel="stylesheet" href="{STYLE}"></head>'
    table = "<table><tr><th>run</th><th>suite</th><th>result</th></tr>" + "".join(rows) + "</table>"
    return f"<!doctype html><html>{head}<body><h1>Data Docs</h1>{table}</body></html>"


def main() -> None:
    from pyspark.sql import SparkSession

    parser = argparse.ArgumentParser(
        prog="python -m data_quality.data_docs", description="Data Docs of a run, offline."
    )
    parser.add_argument("record", type=Path, help="the record of the run: data/runs/<enrichment>/<day>/<run>.json")
    parser.add_argument("--folder", type=Path, default=Path("data/data_docs"))
    options = parser.parse_args()
    record = DayRecord.from_json(options.record.read_text())
    builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(name, "127.0.0.1")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    options.folder.mkdir(parents=True, exist_ok=True)
    print(build(written.read(spark, record.facts), record.facts, record.figures, options.folder))
    spark.stop()


if __name__ == "__main__":
    main()
