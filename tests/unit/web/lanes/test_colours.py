"""The colours of the heat strip are told apart, also by people who do not see all colours."""

import itertools
import re

import pytest

from odradek.web.lanes.heat import HeatLevel
from odradek.web.rendering import STATIC

# Machado, Oliveira and Fernandes (2009), severity 1.
SEEN = {
    "all colours": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
BACK = {"light": "#ffffff", "dark": "#12181d"}


def colours(theme):
    """The colour of each level in a theme, as page.css has them."""
    css = (STATIC / "page.css").read_text()
    found = []
    for level in HeatLevel:
        (value,) = re.findall(rf"--heat-{level.value}: (light-dark\([^)]*\)|#\w+)", css)
        both = re.findall(r"#\w+", value)
        found.append(both[-1] if theme == "dark" else both[0])
    return found


def linear(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    shares = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    return [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]


def luminance(colour):
    return sum(w * s for w, s in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def lab(colour, matrix):
    """CIELAB of a colour as somebody sees it."""
    rgb = [
        min(1.0, max(0.0, sum(m * s for m, s in zip(row, linear(colour), strict=True))))
        for row in matrix
    ]
    rows = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    x, y, z = (
        (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116)
        for t in (
            sum(m * s for m, s in zip(row, rgb, strict=True)) / w
            for row, w in zip(rows, white, strict=True)
        )
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("seen", SEEN)
def test_two_levels_are_told_apart(theme, seen):
    shown = [lab(colour, SEEN[seen]) for colour in colours(theme)]
    for one, other in itertools.combinations(HeatLevel, 2):
        pair = zip(shown[one], shown[other], strict=True)
        distance = sum((a - b) ** 2 for a, b in pair) ** 0.5
        assert distance > 12, (one, other, distance)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_level_stands_out_from_the_background(theme):
    back = luminance(BACK[theme])
    for colour in colours(theme):
        brighter, darker = sorted((luminance(colour), back), reverse=True)
        assert (brighter + 0.05) / (darker + 0.05) >= 3, colour
