"""Names stay plain text in Markdown."""

import pytest

from experiments.report.markdown import escaped


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("SAC+AES-R[kappa=0.3]", "SAC+AES-R[kappa=0.3]"),
        ("constant_at_mean", "constant_at_mean"),
        ("a|b", "a\\|b"),
        ("SAC+permuted[blocks=40](aes_r)", "SAC+permuted[blocks=40]\\(aes_r)"),
        ("<img src=x>`rm`*b*", "\\<img src=x>\\`rm\\`\\*b\\*"),
        ("two\nlines", "two lines"),
        ("back\\slash", "back\\\\slash"),
        (3, "3"),
    ],
)
def test_special_characters_stand_behind_a_backslash(text, shown):
    assert escaped(text) == shown
