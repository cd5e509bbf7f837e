import pytest

from asyncio_core import StreamRecord, Watermark, WatermarkStrategy


def stamps(strategy, *timestamps):
    return [
        element.timestamp if isinstance(element, Watermark) else str(element.timestamp)
        for element in strategy.assign(StreamRecord(None, timestamp) for timestamp in timestamps)
    ]


def test_watermark_follows_the_highest_timestamp_by_the_bound_and_one():
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(2.0)
    assert stamps(strategy, 5000, 4000, 7000) == ["5000", 2999, "4000", "7000", 4999]


def test_monotonous_timestamps_have_no_bound():
    assert stamps(WatermarkStrategy.for_monotonous_timestamps(), 5, 5, 6) == ["5", 4, "5", "6", 5]


def test_an_every_of_2_emits_a_watermark_after_every_second_record():
    strategy = WatermarkStrategy.for_monotonous_timestamps(every=2)
    assert stamps(strategy, 5, 6, 7, 8, 9) == [
        "5",
        "6",
        5,
        "7",
        "8",
        7,
        "9",
    ]


def test_records_without_timestamp_bring_no_watermark():
    assert stamps(WatermarkStrategy.for_monotonous_timestamps(), None, 5, None) == [
        "None",
        "5",
        4,
        "None",
    ]


def test_a_record_at_or_before_the_last_emitted_watermark_is_late():
    generator = WatermarkStrategy.for_bounded_out_of_orderness(1.0).create_watermark_generator()
    assert not generator.is_late(-10)
    assert generator.on_record(5000) == Watermark(3999)
    assert generator.is_late(3999)
    assert not generator.is_late(4000), "exactly the bound behind is in time"
    assert not generator.is_late(None)
    assert generator.on_record(3000) is None, "a late record moves nothing"


def test_a_watermark_that_was_not_emitted_makes_no_record_late():
    generator = WatermarkStrategy.for_monotonous_timestamps(every=3).create_watermark_generator()
    generator.on_record(5000)
    assert not generator.is_late(1)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_wrong_bound_is_refused(seconds):
    with pytest.raises(ValueError, match="out-of-orderness"):
        WatermarkStrategy.for_bounded_out_of_orderness(seconds)


def test_wrong_every_is_refused():
    with pytest.raises(ValueError, match="every"):
        WatermarkStrategy.for_monotonous_timestamps(every=0)
