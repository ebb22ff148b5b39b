"""The roofline of a report: what launches reach, against what the memory allows.

S. Williams, A. Waterman, D. Patterson: Roofline, CACM 52 (2009). A launch is a point: operations
per byte to the right, operations per second upwards, both logarithmic. The line is the speed of the
memory times the operations per byte: launches on it wait for memory, those below for something
else.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flambeau.reports.report import Row

WIDTH, HEIGHT, MARGIN = 640, 300, 44
LEFT, RIGHT = -6.0, 8.0  # operations per byte, as powers of 2


def figure(rows: Sequence[Row], bandwidth: float) -> str:
    """The figure as SVG; nothing where no launch computes.

    Args:
        rows: the launches.
        bandwidth: bytes per second.
    """
    points = []
    for row in rows:
        moved = row.traffic
        if row.microseconds and moved.flops and moved.moved:
            rate = moved.flops / row.microseconds * 1e6
            points.append((moved.flops / moved.moved, rate, moved.name))
    if not points or not bandwidth:
        return ""
    top = math.log2(max([bandwidth * 2.0**2, *(rate for _, rate, _ in points)])) + 1
    bottom = math.log2(min(bandwidth * 2.0**LEFT, *(rate for _, rate, _ in points))) - 1
    drawn = [_frame(bottom, top), _roof(bandwidth, bottom, top)]
    drawn += [
        f'<circle cx="{_x(math.log2(x)):.1f}" cy="{_y(math.log2(y), bottom, top):.1f}" r="4">'
        f"<title>{html.escape(name)}: {y / 1e9:.2f} Gflop/s, {x:.2f} flop per byte</title></circle>"
        for x, y, name in points
    ]
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(drawn)}</svg>'


def _x(power: float) -> float:
    inside = (min(max(power, LEFT), RIGHT) - LEFT) / (RIGHT - LEFT)
    return MARGIN + inside * (WIDTH - 2 * MARGIN)


def _y(power: float, bottom: float, top: float) -> float:
    return HEIGHT - MARGIN - (power - bottom) / (top - bottom) * (HEIGHT - 2 * MARGIN)


def _frame(bottom: float, top: float) -> str:
    low, high = HEIGHT - MARGIN, MARGIN
    parts = [f'<path class="frame" d="M{MARGIN} {high}V{low}H{WIDTH - MARGIN}"/>']
    for exponent in range(int(LEFT), int(RIGHT) + 1, 2):
        label = f"{2**exponent}" if exponent >= 0 else f"1/{2**-exponent}"
        place = f'x="{_x(exponent):.0f}" y="{low + 16}" text-anchor="middle"'
        parts.append(f"<text {place}>{label}</text>")
    for power in (bottom + 1, top - 1):
        height = _y(power, bottom, top)
        parts.append(f'<text x="{MARGIN - 6}" y="{height:.0f}" text-anchor="end">')
        parts.append(f"{2.0**power / 1e9:.3g}</text>")
    place = f'x="{WIDTH - MARGIN}" y="{low + 32}" text-anchor="end"'
    parts.append(f"<text {place}>flop per byte</text>")
    parts.append(f'<text x="{MARGIN}" y="{high - 12}">Gflop/s</text>')
    return "".join(parts)


def _roof(bandwidth: float, bottom: float, top: float) -> str:
    """The line of the memory's speed, as far as it is inside of the frame."""
    speed = math.log2(bandwidth)
    right = min(RIGHT, top - speed)
    left = max(LEFT, bottom - speed)
    ends = [(_x(p), _y(p + speed, bottom, top)) for p in (left, right)]
    (x1, y1), (x2, y2) = ends
    return f'<path class="roof" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'
