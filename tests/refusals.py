"""Result of a refused command: exit code 2, and one sentence of ours on stderr."""

import re

from experiments.cli import main


def sentence(capsys):
    """Text on stderr: exactly one sentence of ours, below 300 characters besides paths, and no traceback."""
    text = capsys.readouterr().err.strip()
    assert "Traceback" not in text
    assert text.startswith("aesjax: ")
    assert len(text.splitlines()) == 1
    assert len(re.sub(r"/[^\s;:,]+", "", text)) < 300
    return text


def refused(capsys, *words):
    """The sentence with which `aesjax` refuses these words."""
    assert main(list(map(str, words))) == 2
    return sentence(capsys)
