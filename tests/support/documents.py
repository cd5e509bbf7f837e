"""The blocks of code of a document, as a reader copies them."""

import re
import textwrap

from tests.support.sources import ROOT

FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def section_of(text: str, heading: str) -> str:
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def all_blocks(page: str, section: str = "") -> list[tuple[str, str]]:
    """The blocks in turn, each with its language: what stands behind the backticks.

    Args:
        page: The path in the project, as docs/dagster.md.
        section: The heading of the section; by default the whole page.
    """
    text = (ROOT / page).read_text()
    found = FENCED.findall(section_of(text, section) if section else text)
    return [(language, textwrap.dedent(code)) for _, language, code in found]


def blocks(page: str, language: str, section: str = "") -> list[str]:
    """The blocks of a language; the empty language is that of a block that is no code."""
    return [code for kind, code in all_blocks(page, section) if kind == language]
