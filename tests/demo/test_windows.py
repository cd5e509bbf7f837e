"""The worked example of windows, as the demo prints it beside the lines of its source."""

import pytest

from demo import windows

pytestmark = pytest.mark.spark

# 1 ms below the source's
WATERMARKS = ("none", "59.999", "00.999", "03.999", "04.999", "06.999", "06.999", "07.999")


def test_the_demo_prints_the_sources_windows_its_late_event_and_each_watermark_beside_ours(
    spark, capsys
):
    windows.main()
    printed = capsys.readouterr().out.splitlines()
    sides = [(line[:50].strip(), line[50:].strip()) for line in printed]
    fired = [side for side in sides if side[0].startswith("fires")]
    assert [its for its, _ in fired] == [
        "fires 04.999: event1 event2 event4", "fires 09.999: event5 event7 event6 event8 event9",
    ]  # fmt: skip
    counted = [side for side in sides if side[0].startswith("12:00")]
    assert len(counted) == 5
    late = ("late, in no window: event3", "late, in no window: event3")
    assert all(its == own for its, own in (*fired, *counted, late))
    assert late in sides
    events = [side for side in sides if side[0].startswith("event")]
    assert [its.partition("watermark")[0] for its, _ in events] == [
        own.partition("watermark")[0] for _, own in events
    ]
    assert tuple(own.rpartition(" ")[2] for _, own in events) == WATERMARKS
