"""Forms of numbers."""

from collections.abc import Mapping

from experiments.measure import comparisons


def starred(contrast: comparisons.Contrast, places: int = 1) -> str:
    """A difference, with a star if p < 0.05 after Holm."""
    difference = contrast.interval.value
    text = f"{difference:+,.{places}f}" + ("*" if contrast.p < 0.05 else "")
    return text[1:] if float(f"{difference:.{places}f}") == 0.0 else text


def counted(case: Mapping) -> str:
    """Number of runs in words."""
    return f"{case['runs']} run{'s' * (case['runs'] > 1)}"


def ranged(ratio: Mapping[str, float]) -> str:
    """Median of a ratio, with its range over rounds."""
    return "{median:.2f} [{min:.2f}, {max:.2f}]".format(**ratio)


def number(value: float) -> str:
    """A number as it is typed."""
    return f"{value:g}".replace("e-0", "e-")
