"""The picture of the crash is of the requests that the service counted."""

import re
import xml.etree.ElementTree as ET

from demo.calls import Call, Tally
from demo.picture import LEFT, WIDTH, describe, draw


def tally(keys, again):
    calls = [*range(keys), *range(again)]
    return Tally.of(Call(0.0, 1.0, "JFK", str(key), 1, "ok", 1) for key in calls)


def test_bars_are_as_long_as_the_number_of_requests_and_labelled_with_the_number():
    tidegate, by_hand = tally(1_500, 20), tally(1_500, 700)
    root = ET.fromstring(draw(tidegate, by_hand))
    bars = [element for element in root if element.get("class") in ("once", "again")]
    widths = [float(bar.get("width")) for bar in bars]
    assert [round(width / widths[0] * 1_500) for width in widths] == [1_500, 20, 1_500, 700]
    assert all(LEFT <= float(bar.get("x")) <= WIDTH for bar in bars)
    texts = [element.text for element in root if element.tag.endswith("text")]
    assert [text for text in texts if "again" in text][1:] == ["+ 20 again", "+ 700 again"]
    assert texts.count("1,500 keys") == 2
    assert re.findall(r"[\d,]*\d", describe(tidegate, by_hand)) == ["20", "700"]
