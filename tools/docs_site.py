"""Hooks of MkDocs: pages from the root of the repository, a notebook, links out of docs/, llms.txt.

Files outside docs/, such as sources that a page names, are not on the site: a link to one becomes
text.
"""

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
NOTEBOOK = "docs/frames.ipynb"
ADDED = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "notebook.md": NOTEBOOK,
}
LISTED = re.compile(r"^ +- (\S+\.md)$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\(((?!https?:|#)[^)#\s]+)([^)]*)\)")
NO_PROSE = ("#", "!", "|", "-", ">", "[")  # how a paragraph without a sentence begins


def on_config(config: Any) -> Any:
    """Add the pages that mkdocs.yml does not list to its first section."""
    docs = ROOT / "docs"
    listed = {*LISTED.findall((ROOT / "mkdocs.yml").read_text())}
    pages = sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))
    (first,) = config.nav[0].values()
    first.extend(page for page in pages if page not in listed)
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add pages from the root, and the notebook as a page."""
    for name, source in ADDED.items():
        text = (ROOT / source).read_text()
        content = _page_of(json.loads(text)) if source == NOTEBOOK else text
        files.append(File.generated(config, name, content=content))
    return files


def _page_of(notebook: Any) -> str:
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)
        for output in cell.get("outputs", ()):
            shown = output.get("data", {}).get("text/plain") or output["text"]
            parts.append(f"```text\n{''.join(shown).rstrip()}\n```")
    return "\n\n".join(parts)


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """Turn links to the pages of ADDED into links on the site, and other links out into text."""
    source = page.file.src_uri
    place = ROOT / ADDED[source] if source in ADDED else ROOT / "docs" / source
    pages = {str(ROOT / path): name for name, path in ADDED.items()}
    up = "../" * source.count("/")

    def rewritten(link: re.Match[str]) -> str:
        text, target, anchor = link.groups()
        wanted = (place.parent / target).resolve()
        name = pages.get(str(wanted))
        if name is None and wanted.is_relative_to(ROOT / "docs"):
            name = wanted.relative_to(ROOT / "docs").as_posix()
        if name is None or name not in files.src_uris:
            return str(text)
        return f"[{text}]({up}{name}{anchor})"

    return LINK.sub(rewritten, markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Name the dialog of the search, for readers of the screen."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"', 1)


def on_nav(nav: Any, config: Any, files: Any) -> Any:
    """Write llms.txt: the title, address and first sentence of each page, for language models."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for section in nav.items:
        lines += [f"## {section.title}", ""]
        pages = [item for item in section.children if item.is_page]
        lines += [_described(page.file) for page in pages]
        lines.append("")
    files.append(File.generated(config, "llms.txt", content="\n".join(lines)))
    return nav


def _described(file: Any) -> str:
    text = re.sub(r"```.*?```", "", file.content_string, flags=re.DOTALL)
    title, *paragraphs = (" ".join(part.split()) for part in text.split("\n\n") if part.strip())
    prose = next((part for part in paragraphs if not part.startswith(NO_PROSE)), "")
    sentence = re.split(r"(?<=[.:])\s", LINK.sub(lambda link: link[1], prose))[0]
    return f"- [{title.removeprefix('# ')}]({file.src_uri}): {sentence}"
