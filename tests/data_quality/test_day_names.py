"""The names of earlier days, by which the checks find what to compare a day with."""

from data_quality.day_names import DayName


def test_days_before_the_year_1_do_not_count_as_earlier_days():
    fifth, hour = (DayName.read(day) for day in ("0001-01-05", "0001-01-03T05Z"))
    assert fifth.earlier(range(1, 29)) == [f"0001-01-0{day}" for day in (4, 3, 2, 1)]
    assert hour.earlier(range(1, 29)) == ["0001-01-02T05Z", "0001-01-01T05Z"]
    assert fifth.earlier(range(7, 29, 7)) == []
