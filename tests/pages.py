"""Parts of pages, for tests: fenced blocks, sentences, links, anchors as hosts of repositories make them."""

import re
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "docs"))
fill = import_module("fill_pages")  # docs/fill_pages.py, which fills pages from records

PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "api").glob("*.md")),
    *sorted((ROOT / "docs" / "proofs").glob("*.md")),
    *sorted((ROOT / "benchmarks").rglob("*.md")),
)
NEEDS = {  # package beyond requirements.lock that a module needs
    "envs.adapters.brax": "brax",
    "envs.adapters.playground": "mujoco_playground",
    "envs.adapters.sb3": "stable_baselines3",
    "envs.bridge.torch_tasks": "torch",
    "experiments.sb3_entropy": "stable_baselines3",
}
FENCE = re.compile(r"^```(.*)\n((?:.*\n)*?)^```$", flags=re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in one language, in order."""
    return [body for kind, body in FENCE.findall(page.read_text()) if kind.strip() == language]


def without_code(text: str) -> str:
    """A page's text without fenced and inline code."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def links(page: Path) -> list[str]:
    """Targets of links and pictures."""
    return re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text()))


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), flags=re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", title).strip().lower().replace(" ", "-") for title in titles}


def commands(page: Path) -> list[str]:
    """Lines of the blocks that are commands."""
    return [line for block in blocks(page, "bash") for line in block.strip().splitlines()]
