import re

import pytest
from honest_day import honest_day
from planted_faults import answer_out_of_range

from data_quality.data_docs import build, make_offline
from data_quality.written import read

PAGE = """<html><head><link rel="stylesheet" href="https://cdn.example/a.css" integrity="sha1">
<script src='//cdn.example/b.js'></script><script>$('#t').bootstrapTable()</script></head>
<body><img src="https://example.com/logo.png?id=1"><a href="https://example.com/docs">docs</a>
<td>held</td><footer>subscribe</footer></body></html>"""
OUTSIDE = re.compile(r"""(?:src|href)\s*=\s*["'](?:https?:)?//""")


def test_every_outside_address_is_taken_out_and_the_content_stays(tmp_path):
    page = tmp_path / "validations" / "suite" / "2013-01-10" / "x.html"
    page.parent.mkdir(parents=True)
    page.write_text(PAGE)
    index = make_offline(tmp_path)
    for text in (page.read_text(), index.read_text()):
        assert not OUTSIDE.search(text)
        assert "<script" not in text
    assert "<td>held</td>" in page.read_text()
    assert "../../../offline.css" in page.read_text()
    assert 'href="validations/suite/2013-01-10/x.html"' in index.read_text()


def test_making_offline_twice_changes_nothing(tmp_path):
    (tmp_path / "page.html").write_text(PAGE)
    make_offline(tmp_path)
    once = (tmp_path / "page.html").read_text()
    make_offline(tmp_path)
    assert (tmp_path / "page.html").read_text() == once


@pytest.mark.proof
@pytest.mark.spark
def test_the_pages_of_a_judged_day_say_what_was_found_and_ask_nobody(spark, tmp_path):
    day = honest_day(tmp_path / "day", "unordered", sizes=(40,))
    answer_out_of_range(day, "first")
    facts, figures = day.write()
    for _ in range(2):  # the second time over the first
        index = build(read(spark, facts), facts, figures, tmp_path / "docs")
    pages = [page.read_text() for page in index.parent.rglob("*.html")]
    assert not any(OUTSIDE.search(page) for page in pages)
    (validation,) = [page.read_text() for page in index.parent.glob("validations/**/*.html")]
    assert "1 row with an answer out of range" in validation
    assert "No row crosses a watermark" in validation
    assert "<td>failed</td>" in index.read_text()
