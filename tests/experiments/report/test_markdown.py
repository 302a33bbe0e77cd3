"""Names stay plain text in Markdown."""

import pytest

from experiments.report.markdown import escaped


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("constant_at_mean[kappa=0.3]", "constant_at_mean[kappa=0.3]"),
        ("a|b", "a\\|b"),
        ("SAC+permuted[blocks=40](aes_r)", "SAC+permuted[blocks=40]\\(aes_r)"),
        ("<img src=x>`rm`*b*\\", "\\<img src=x>\\`rm\\`\\*b\\*\\\\"),
        ("two\nlines", "two lines"),
    ],
)
def test_special_characters_stand_behind_a_backslash(text, shown):
    assert escaped(text) == shown
