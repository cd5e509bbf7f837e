"""Dates and times in text: the forms that are read, against an independent model."""

import datetime as dt
import random
import re

import pytest

from jobs.declare.answers.times import (
    UnreadText,
    read_date,
    read_timestamp,
    shown,
)

UTC = dt.UTC
NUMBERS = re.compile(r"[0-9]+")


def test_compact_times_without_t_are_refused_with_the_forms() -> None:
    for text in ("20260110120000Z", "20260110100000Z", "20260110120000", "202601101200"):
        with pytest.raises(UnreadText) as caught:
            read_timestamp(text)
        assert str(caught.value) == (
            "expected TIMESTAMP (such as 2013-01-10T05:00:00.123456+01:00, 2013-01-10 05:00:00 or "
            f"20130110T050000Z), got {text!r}"
        )


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "now",
            "2013-01-10x05:00:00",
            "2013-01-10T",
            "2013-01-10 05:00:00 ",
            " 2013-01-10",
            "2013-01-10Z",
        ),
        *(
            "2013-W02-4",
            "2013W024",
            "2013-010",
            "2013-1-10",
            "13-01-10",
            "2013/01/10",
            "2013-02-30",
            "2013-13-01",
        ),
        *(
            "0000-01-01",
            "10000-01-01",
            "2013-01-10T24:00:00",
            "2013-01-10T05:60",
            "2013-01-10T05:00:60",
        ),
        *(
            "2013-01-10T0500",
            "20130110T05:00",
            "2013-01-10T05:00:00.",
            "2013-01-10T05:00.5",
            "2013-01-10T05:00:00 Z",
        ),
        *(
            "2013-01-10T05:00:00+24:00",
            "2013-01-10T05:00:00+01:60",
            "2013-01-10T05:00:00+1",
            "2013-01-10T05:00:00+010",
        ),
        *(
            "2013-01-10T05:00:00+01:00:30",
            "2013-01-10T05:00:00UTC",
            "2013-01-10T05:00:00Z\n",
            "２０１３-01-10",
            "2013-01-10\n",
        ),
        *(
            "0001-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
            "1357794000",
            "2013-01-10T05:00:00.1234567890",
        ),
    ],
)
def test_texts_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(UnreadText, match=re.escape(repr(text)) if text.isprintable() else "got"):
        read_timestamp(text)
    with pytest.raises(UnreadText):
        read_date(text)


def test_each_form_of_a_time_is_read_in_utc() -> None:
    five = dt.datetime(2013, 1, 10, 5, tzinfo=UTC)
    for text in (
        *(
            "2013-01-10T05:00:00Z",
            "2013-01-10 05:00:00",
            "2013-01-10T05",
            "2013-01-10t05:00z",
            "20130110T050000Z",
        ),
        *(
            "2013-01-10T06:00:00+01",
            "2013-01-10 06:00+0100",
            "20130109T2330-05:30",
            "2013-01-10T05:00:00,000",
        ),
    ):
        assert read_timestamp(text) == five, text
    assert read_timestamp("2013-01-10") == five.replace(hour=0)
    assert read_timestamp("2013-01-10T05:00:00.123456789Z").microsecond == 123456
    assert read_date("20130110") == read_date("2013-01-10") == dt.date(2013, 1, 10)


def test_random_times_are_read_as_a_model_reads_them() -> None:
    draw = random.Random(7)
    texts, moments = zip(*(_random_time(draw) for _ in range(5_000)), strict=True)
    assert [read_timestamp(text) for text in texts] == list(moments)
    days = [
        draw.choice(("%04d-%02d-%02d", "%04d%02d%02d")) % (m.year, m.month, m.day) for m in moments
    ]
    assert [read_date(day) for day in days] == [m.date() for m in moments]


def _random_time(draw: random.Random) -> tuple[str, dt.datetime]:
    """A text in one of the forms, and its moment, computed from its numbers alone."""
    day = dt.date.fromordinal(draw.randrange(3, dt.date.max.toordinal() - 3))
    hour, minute, second, micros = draw.randrange(24), 0, 0, 0
    hyphen, colon = draw.choice((("-", ":"), ("", "")))
    text = f"{day.year:04}{hyphen}{day.month:02}{hyphen}{day.day:02}"
    if draw.random() < 0.1:
        return text, dt.datetime(day.year, day.month, day.day, tzinfo=UTC)
    text += f"{draw.choice('T t')}{hour:02}"
    if draw.random() < 0.9:
        minute = draw.randrange(60)
        text += f"{colon}{minute:02}"
        if draw.random() < 0.9:
            second = draw.randrange(60)
            text += f"{colon}{second:02}"
            if draw.random() < 0.7:
                digits = "".join(draw.choices("0123456789", k=draw.randint(1, 9)))
                micros = int(digits.ljust(9, "0")) // 1000
                text += draw.choice(".,") + digits
    behind = dt.timedelta()
    if draw.random() < 0.7:
        sign, hours, minutes = draw.choice("+-"), draw.randrange(24), draw.choice((0, 30, 45))
        zone, behind = draw.choice(
            (
                ("Z", behind),
                (f"{sign}{hours:02}", dt.timedelta(hours=hours)),
                (f"{sign}{hours:02}{minutes:02}", dt.timedelta(hours=hours, minutes=minutes)),
                (f"{sign}{hours:02}:{minutes:02}", dt.timedelta(hours=hours, minutes=minutes)),
            )
        )
        text += zone
        behind = -behind if sign == "-" else behind
    seconds = dt.timedelta(
        days=day.toordinal() - 1, hours=hour, minutes=minute, seconds=second, microseconds=micros
    )
    return text, dt.datetime(1, 1, 1, tzinfo=UTC) + seconds - behind


def test_a_value_is_shown_on_one_line_also_where_its_class_writes_several() -> None:
    class Place:
        def __repr__(self) -> str:
            return "Place(\n  7)"

    assert [shown(Place()), shown([Place()]), shown("a\n  b")] == [
        "Place( 7)", "[Place( 7)]", r"'a\n  b'",
    ]  # fmt: skip
