"""Reads an answer that is inside another: JSON in a text, as a language model writes it."""

import re
from typing import Any

from jobs.declare.answers.json_paths import JsonPath
from jobs.declare.answers.json_text import read_json
from jobs.declare.answers.times import shown

FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)^[ \t]*```[ \t]*\r?$", re.DOTALL | re.MULTILINE)
FENCE_MARK = "```"
OBJECT = re.compile(r'\{\s*"')
THOUGHTS, THOUGHTS_END = "<think>", "</think>"  # some chat templates have the first in the prompt
BOM = "\ufeff"


class InnerAnswer:
    """Finds the answer at a JSON path, declared as `answer`, as JSON or as a text with JSON.

    Raises:
        DeclarationError: The path is invalid.
    """

    def __init__(self, path: str) -> None:
        self._declared = path
        self._path = JsonPath("answer", path)

    def read(self, answer: Any) -> Any:
        """Return the inner answer.

        A text is JSON, or has exactly one Markdown fence whose content is; a model's thoughts
        before it are left out.

        Raises:
            ValueError: There is none, or its text is not JSON by the rules of `read_json`.
        """
        found = self._path.value(answer)
        if found is None:
            raise ValueError(f"it has nothing at {self._declared} (answer)")
        if not isinstance(found, str):
            return found
        try:
            return read_json(_without_fence(_without_thoughts(found.removeprefix(BOM))))
        except ValueError as error:
            raise ValueError(
                f"the text at {self._declared} (answer) is not JSON: {error}: {shown(found)}"
            ) from error


def _without_thoughts(text: str) -> str:
    """Return what follows a model's thoughts, which may have drafts of the answer.

    Raises:
        ValueError: They have no end.
    """
    if text.lstrip()[:1] in ("{", "["):  # the mark is inside the JSON
        return text
    thoughts, end, rest = text.partition(THOUGHTS_END)
    if not end and thoughts.lstrip().startswith(THOUGHTS):
        raise ValueError(f"its {THOUGHTS} has no {THOUGHTS_END}")
    return rest if end else text


def _without_fence(text: str) -> str:
    """Return the content of a text's only fence, or the text without a fence.

    Raises:
        ValueError: Several fences, a fence without an end, or an object after the fence.
    """
    if FENCE_MARK not in text or text.lstrip()[:1] in ("{", "["):  # the mark is inside the JSON
        return text
    fences = [*FENCE.finditer(text)]
    if len(fences) != 1:
        raise ValueError(
            f"it has {len(fences)} blocks between ```, and must have one"
            if fences
            else "its block has no closing ```"
        )
    if FENCE_MARK in FENCE.sub("", text):
        raise ValueError("one of its blocks has no closing ```")
    if OBJECT.search(text, fences[0].end()):
        raise ValueError("it has an object after its block between ```, and either may be meant")
    return fences[0][1]
