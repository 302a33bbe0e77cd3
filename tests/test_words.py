"""Plain English: sentences of pages are short, and neither headings nor docstrings begin with *What*."""

import ast
import re

import pytest

from tests.pages import FENCE, PAGES, ROOT, sentences

#: Folders whose docstrings and names are checked.
FOLDERS = ("aesjax", "agents", "benchmarks", "docs", "envs", "experiments")
BEGINNING = re.compile(r"(What|Whatever|Who|Whoever)\b(?!.*\?$)")
NAMES = {"told", "whoever"}
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
WRITTEN = [page for page in PAGES if page.parent.name not in ("proofs", "parity") and page.name != "CHANGELOG.md"]
WRITTEN = [page for page in WRITTEN if page.parent != ROOT / "benchmarks" or page.name == "README.md"]


def named(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", WRITTEN, ids=named)
def test_sentences_of_a_page_are_short_and_begin_with_their_subject(page):
    text = FENCE.sub("", page.read_text())
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    assert [line for line in (*headings, *sentences(text)) if BEGINNING.match(line)] == []
    assert [line for line in sentences(text) if len(line.split()) > 25] == []


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_docstrings_and_names_of_a_source_follow_the_rules(path):
    tree = ast.parse(path.read_text())
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
    assert [text for text in texts if BEGINNING.match(text.partition("\n")[0])] == []
    names = {getattr(node, field, None) for node in ast.walk(tree) for field in ("id", "arg", "name", "attr")}
    assert names & NAMES == set()


def test_a_long_sentence_and_a_docstring_that_begins_with_what_would_be_seen():
    assert BEGINNING.match("What a checkpoint holds.")
    assert not BEGINNING.match("Does AES work?")
    assert sentences("One `a b c` [two](x.md). Three\nfour.\n\n| five |\n") == ["One CODE two.", "Three four."]
