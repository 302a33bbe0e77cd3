"""References to proofs in code, tests and pages lead to headings that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs" / "proofs").glob("*.md"))
REFERENCE = re.compile(r"proofs/(\w+\.md)((?:[,: ]*#[\w-]+)+)")  # a page, then one anchor or several


def anchors(page):
    """Anchors of a page's headings of the second level, as GitHub makes them."""
    titles = re.findall(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)
    return [re.sub(r"[^\w\s-]", "", title).strip().lower().replace(" ", "-") for title in titles]


PROOFS = {(page.name, anchor) for page in PAGES for anchor in anchors(page)}


def referred(paths):
    """(page, anchor) of every reference in the files."""
    found = set()
    for path in paths:
        for page, names in REFERENCE.findall(path.read_text()):
            found |= {(page, name) for name in re.findall(r"#([\w-]+)", names)}
    return found


def test_every_reference_leads_to_a_proof():
    texts = [*(ROOT / "aesjax").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "docs").glob("*.md")]
    given = referred(texts)
    assert given
    assert given <= PROOFS, sorted(given - PROOFS)
