"""The blocks of code of a document, as a reader copies them."""

import re
import textwrap

from tests.support.sources import ROOT

FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str, section: str = "") -> list[str]:
    """The blocks of a language.

    Args:
        page: The path in the project, as docs/dagster.md.
        language: What stands behind the backticks; empty for a block that is no code.
        section: The heading of the section; by default the whole page.
    """
    text = (ROOT / page).read_text()
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = [(kind, textwrap.dedent(code)) for _, kind, code in FENCED.findall(text)]
    return [code for kind, code in found if kind == language]
