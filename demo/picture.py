"""Draws the crash: the requests that the service counted, and which of them it was asked again."""

from demo.calls import Tally

WIDTH, LEFT, BAR, GAP, TOP = 720, 206, 34, 24, 78  # px
STYLE = """
text { font: 15px system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; fill: #20262e; }
.soft { fill: #5b6573; font-size: 13px; } .strong { font-weight: 650; }
.paper { fill: #fff; } .once { fill: #2a7f62; } .again { fill: #c8442f; } .on { fill: #fff; }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e8ee; } .soft { fill: #9ba6b4; } .paper { fill: #1a2027; }
  .once { fill: #45b08b; } .again { fill: #ef7561; } .on { fill: #10151a; }
}"""


def draw(tidegate: Tally, by_hand: Tally) -> str:
    """Return an SVG of two runs with the same crash: each key once, and keys asked again."""
    bars = {"Tidegate": tidegate, "hand-written gather": by_hand}
    pixel = (WIDTH - LEFT - 150) / max(bar.distinct_keys + bar.asked_twice for bar in bars.values())
    height = TOP + len(bars) * (BAR + GAP)
    lines = [
        line
        for place, (name, tally) in enumerate(bars.items())
        for line in _bar(name, tally, TOP + place * (BAR + GAP), pixel)
    ]
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"
  height="{height}" role="img" aria-label="{describe(tidegate, by_hand)}">
<style>{STYLE}</style>
<rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>
<text class="strong" x="24" y="34">A day is killed in the middle and run again</text>
<text class="soft" x="24" y="55">requests that the service answered, by its own count</text>
{chr(10).join(lines)}
</svg>
"""


def describe(tidegate: Tally, by_hand: Tally) -> str:
    """Return the picture in a sentence."""
    return (
        f"A run killed in the middle and started again asks {tidegate.asked_twice:,} keys twice, a "
        f"hand-written gather {by_hand.asked_twice:,}"
    )


def _bar(name: str, tally: Tally, top: int, pixel: float) -> list[str]:
    once, again = tally.distinct_keys * pixel, tally.asked_twice * pixel
    middle = top + BAR / 2 + 5
    end = LEFT + once + again + 10
    return [
        f'<text class="strong" x="{LEFT - 12}" y="{middle}" text-anchor="end">{name}</text>',
        f'<rect class="once" x="{LEFT}" y="{top}" width="{once:.1f}" height="{BAR}"/>',
        f'<rect class="again" x="{LEFT + once:.1f}" y="{top}" width="{again:.1f}" height="{BAR}"/>',
        f'<text class="on" x="{LEFT + 10}" y="{middle}">{tally.distinct_keys:,} keys</text>',
        f'<text class="strong" x="{end:.1f}" y="{middle}">+ {tally.asked_twice:,} again</text>',
    ]
