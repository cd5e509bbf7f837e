"""Declarations of requests with many keys, and of answers in pages."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from jobs.declare.answers.json_paths import JsonPath
from jobs.declare.values.fingerprint import WHERE_DECLARED
from jobs.declare.values.templates import JsonTemplate, require_same_names
from jobs.declare.values.type_checks import require_count, require_types
from jobs.errors import DeclarationError

LeftOut = Literal["error", "miss"]
LINK = "Link"  # the header, in place of a path to the next page
ID, ITEMS = "id", "items"  # placeholders whose values Tidegate makes


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Many keys in a request, with an answer for each.

    Attributes:
        max_items: Highest number of keys in a request.
        max_wait: Longest time, in seconds, that a key waits for others.
        item: The JSON of a key: {key} becomes a key's value, {id} a generated id.
        body: The JSON of the request; "{items}" becomes the list of items.
        answers: JSON path to the list of answers.
        match: JSON path of the id in an answer: the value of {id}, or, in an item without {id}, its
            only key.
        position: Instead of match, JSON path of an answer's number, as "$.index": the item's place
            in the request, counted from 0. Every item must have exactly one answer. Without match
            and position, answers are taken in the order of the items, one for each; `tidegate
            check` names such a lookup.
        left_out: The outcome of a key without an answer, "error" or "miss".
    """

    max_items: int
    max_wait: float
    item: Any
    body: Any = "{items}"
    answers: str = "$"
    match: str | None = None
    left_out: LeftOut = "error"
    position: str | None = field(default=None, metadata=WHERE_DECLARED)

    def __post_init__(self) -> None:
        require_types(self, "batch")
        require_count("batch: max_items", self.max_items)
        if not 0 <= self.max_wait < math.inf:
            raise DeclarationError(f"batch: max_wait is {self.max_wait} s; it must be 0 or more.")
        JsonPath("batch.answers", self.answers)
        if self.match is not None:
            JsonPath("batch.match", self.match)
        body = JsonTemplate("batch.body", self.body)
        if body.names != {ITEMS} or body.whole != [ITEMS]:
            raise DeclarationError(
                f'batch: body is {self.body!r}; it must hold "{{items}}" once, as a text of its '
                'own, and no other placeholder, as in {"items": "{items}"}.'
            )
        JsonTemplate("batch.item", self.item)
        if self.position is not None:
            self._check_position(self.position)

    def _check_position(self, path: str) -> None:
        JsonPath("batch.position", path)
        if self.match is not None or self.has_ids:
            has = "match" if self.match is not None else "{id} in item"
            raise DeclarationError(
                f"batch: position and {has}: an answer is matched by one of them; leave one out."
            )
        if self.left_out == "miss":
            raise DeclarationError(
                'batch: left_out="miss" and position are both given: if the service left an item '
                "out and counted from 1, keys would get the answers of others. Leave out one of "
                "the two."
            )

    @property
    def trusts(self) -> str | None:
        """What the answers do not prove, for `tidegate check`; None if each names its item."""
        if self.match is not None or self.position is not None or self.max_items == 1:
            return None
        return (
            "batch: it trusts the service to answer in the order of the items, because an answer "
            "names none; if it has an id or a number, declare batch.match or batch.position"
        )

    @property
    def has_ids(self) -> bool:
        return ID in JsonTemplate("batch.item", self.item).names

    def check(self, keys: list[str], timeout: float | None) -> None:
        """Check the batch against its lookup.

        Args:
            keys: Names of the lookup's keys.
            timeout: The lookup's time limit in seconds, or None.

        Raises:
            DeclarationError: Batch and lookup do not fit.
        """
        made = sorted({ID, ITEMS} & set(keys))
        if made:
            raise DeclarationError(
                f"keys: a batch makes {{{made[0]}}} itself; rename the key {made[0]!r}."
            )
        used = JsonTemplate("batch.item", self.item).names - {ID}
        require_same_names("batch", "batch.item", used, keys)
        if self.match is not None and not self.has_ids and len(keys) > 1:
            raise DeclarationError(
                f"batch: match is {self.match!r}, but an item has no {{id}} and {len(keys)} keys; "
                f'put "{{id}}" into '
                "item, where the service takes an id and repeats it."
            )
        if timeout is not None and self.max_wait >= timeout:
            raise DeclarationError(
                f"batch: max_wait is {self.max_wait} s, and a row leaves after timeout, {timeout} "
                "s; lower max_wait."
            )


@dataclass(frozen=True, kw_only=True)
class Pages:
    """An answer in several pages, requested in sequence.

    Attributes:
        next: JSON path, in a page, of the next page's address (absolute or relative) or, with
            `parameter`, of a value for that query parameter. A page where it finds nothing, null,
            false or "" is the last. "Link": the page's header of that name has the address, as
            rel="next".
        max_pages: Highest number of pages; a longer answer is an error.
        items: JSON path of the list that continues from page to page: the answer is the first page
            with the whole list. None: the answer is the list of pages.
        parameter: Name of the query parameter for the value of `next`.
        more: JSON path, in a page, of true where another page follows. A page that leaves it out is
            the last if an earlier page of the answer had it; otherwise `next` tells.
    """

    next: str
    max_pages: int
    items: str | None = None
    parameter: str | None = None
    more: str | None = field(default=None, metadata=WHERE_DECLARED)

    def __post_init__(self) -> None:
        require_types(self, "pages")
        if self.next == LINK and self.parameter is not None:
            raise DeclarationError(
                f'pages: parameter is {self.parameter!r}, but next="Link" gives whole '
                "addresses; leave parameter out."
            )
        if self.next != LINK:
            JsonPath("pages.next", self.next)
        if self.more is not None:
            JsonPath("pages.more", self.more)
        require_count("pages: max_pages", self.max_pages)
        if self.items is not None and not JsonPath("pages.items", self.items).picks_one:
            raise DeclarationError(
                f"pages: items is {self.items!r}; it must name one list, such as $.items."
            )
        if self.parameter == "":
            raise DeclarationError(
                "pages: parameter is empty; it must name a query parameter, as cursor."
            )
