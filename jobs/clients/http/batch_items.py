"""Batches on the wire: keys become items of a request, and its answer an outcome for each key."""

import decimal
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.clients.client import CallFailed, Throttled, Unclear
from jobs.clients.http.answer_body import SHOWN
from jobs.clients.http.responses import Response
from jobs.declare.answers.conditions import Conditions
from jobs.declare.answers.json_paths import JsonPath
from jobs.declare.answers.json_text import repeated_member
from jobs.declare.batch import ID, ITEMS, Batch
from jobs.declare.lookup import Key
from jobs.declare.values.templates import JsonTemplate, as_text, dumped
from jobs.wording import one_line


@dataclass(frozen=True, slots=True)
class Items:
    """The items of a request.

    Attributes:
        ids: The items' ids.
        asked: The items' JSON.
        of_key: By key, the index of its item, or the reason for its absence.
        texts: The text of a key -> the id of its item, if answers are matched by key.
    """

    ids: list[str]
    asked: list[Any]
    of_key: list[int | CallFailed]
    texts: dict[str, str]


class ItemRequests:
    """A lookup's batches. Answers are matched to items by id, by position or in their order."""

    def __init__(
        self,
        batch: Batch,
        names: Sequence[str],
        *,
        misses: Conditions,
        throttles: Conditions,
        masked: Callable[[str], str],
    ) -> None:
        self._names = names
        self._misses = misses
        self._throttles = throttles
        self._masked = masked
        self._item = JsonTemplate("batch.item", batch.item)
        self._body = JsonTemplate("batch.body", batch.body)
        self._where = batch.answers
        self._answers = JsonPath("batch.answers", batch.answers)
        self._match = None if batch.match is None else JsonPath("batch.match", batch.match)
        self._position = (
            None if batch.position is None else JsonPath("batch.position", batch.position)
        )
        self._by_key = self._match is not None and not batch.has_ids
        self._left_out = batch.left_out

    @property
    def answers_name_keys(self) -> bool:
        """Whether answers are matched by key, not by place or by an id that is reused."""
        return self._by_key

    def items(self, keys: Sequence[Key]) -> Items:
        """Return an item for each key; equal keys share an item if answers are matched by key."""
        ids: list[str] = []
        asked: list[Any] = []
        of_key: list[int | CallFailed] = []
        places: dict[str, int] = {}
        texts: dict[str, str] = {}
        for key in keys:
            made = id_text(key[0]) or as_text(key[0]) if self._by_key else str(len(asked))
            if made not in places:
                try:
                    item = self._item.filled({ID: made, **dict(zip(self._names, key, strict=True))})
                    dumped(item)  # an unwritable item fails only its key
                except ValueError as error:
                    of_key.append(CallFailed(str(error)))
                    continue
                places[made] = len(asked)
                ids.append(made)
                asked.append(item)
            of_key.append(places[made])
            if self._by_key:
                texts[as_text(key[0])] = made
        return Items(ids, asked, of_key, texts)

    def body(self, items: Items) -> bytes:
        return dumped(self._body.filled({ITEMS: items.asked}))

    def outcomes(self, items: Items, response: Response) -> list[Any]:
        """Return by key its answer, None for a miss, or its exception.

        Raises:
            CallFailed: Answers cannot be matched to items.
            Throttled: The whole answer means throttling.
        """
        found = self._answers.value(response.content)
        is_list = isinstance(found, list)
        if not (is_list and found) and self._throttles.hold_for(
            response.content
        ):  # an empty list may also mean throttling
            raise Throttled("throttled, by the answer", response.retry_after)
        if not is_list:
            shown = one_line(self._masked(json.dumps(response.content, default=str)), SHOWN)
            raise Unclear(f"the answer has no list at {self._where} (batch.answers): {shown}")
        if response.is_ambiguous:
            self._refuse_ambiguous(response, found)
        answers = self._matched(items, found, response)
        judged = [self._judged(answer, response) for answer in answers]
        return [place if isinstance(place, CallFailed) else judged[place] for place in items.of_key]

    @staticmethod
    def _refuse_ambiguous(response: Response, answers: list[Any]) -> None:
        """Raise CallFailed for a repeated member outside the answers of the items."""
        if twice := repeated_member(response.content, apart=answers):
            raise Unclear(f"the answer is not JSON: {twice}")

    def _matched(self, items: Items, answers: list[Any], response: Response) -> list[Any]:
        if self._match is not None:
            return self._by_id(items, answers, response)
        if self._position is None:
            return self._by_place(items, answers)
        return self._by_position(items, answers)

    def _by_position(self, items: Items, answers: list[Any]) -> list[Any]:
        """Match answers by position. Raises CallFailed unless each position has one answer."""
        assert self._position is not None
        given = [id_text(self._position.value(answer)) for answer in answers]
        if sorted(given, key=str) != sorted(items.ids):
            shown = one_line(
                self._masked(", ".join("none" if key is None else key for key in given)), SHOWN
            )
            raise Unclear(
                f"the answers have the positions {shown or 'of no item'} (batch.position); "
                f"for {len(items.ids)} items they must be 0 to {len(items.ids) - 1}, each once"
            )
        by_position = dict(zip(given, answers, strict=True))
        return [by_position[made] for made in items.ids]

    def _by_place(self, items: Items, answers: list[Any]) -> list[Any]:
        if len(answers) != len(items.asked):
            raise Unclear(
                f"the service gave {len(answers)} answers for {len(items.asked)} items, and "
                "without batch.match or batch.position they cannot be matched"
            )
        return answers

    def _by_id(self, items: Items, answers: list[Any], response: Response) -> list[Any]:
        assert self._match is not None
        given: dict[str, list[Any]] = {made: [] for made in items.ids}
        unknown = 0
        for answer in answers:
            made = id_text(self._match.value(answer))
            if made is not None:
                made = items.texts.get(made, made)
            if made in given:
                given[made].append(answer)
            else:
                unknown += 1
        if unknown and not any(given.values()):
            if self._by_key and response.connection is not None:
                response.connection.distrust()
            raise CallFailed(
                "all answers have an unknown id: they belong to another request", passing=True
            )
        return [self._only(given[made], unknown) for made in items.ids]

    def _only(self, answers: list[Any], unknown: int) -> Any:
        if len(answers) > 1:
            return Unclear(
                f"the service gave {len(answers)} answers for this item; a lookup gives one"
            )
        if answers:
            return answers[0]
        if self._left_out == "miss" and not unknown:
            return None
        # among them may be this item's answer, under another spelling of its id
        beside = f"; {unknown} of its answers have an unknown id" if unknown else ""
        return Unclear(f"the service left this item out of its answer{beside}")

    def _judged(self, answer: Any, response: Response) -> Any:
        if isinstance(answer, CallFailed):
            return answer
        if response.is_ambiguous and (twice := repeated_member(answer)):
            return Unclear(f"the answer is not JSON: {twice}")
        if answer is None:
            is_miss = self._left_out == "miss" or self._misses.hold_for(None)
            return None if is_miss else Unclear("the service answered null")
        try:
            if self._throttles.hold_for(answer):
                return Throttled("throttled, by the answer", response.retry_after)
            return None if self._misses.hold_for(answer) else answer
        except ValueError as error:
            return Unclear(str(error))


def id_text(value: Any) -> str | None:
    """Return the id as sent, if it returns as text or as a number, with any number of digits."""
    if isinstance(value, float | decimal.Decimal) and math.isfinite(value):
        exact = decimal.Decimal(str(value))
        whole = int(exact)
        return str(whole) if whole == exact else f"{exact:f}".rstrip("0")
    return as_text(value) if isinstance(value, str | int | float) else None
