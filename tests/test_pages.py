"""Pages: links and anchors lead somewhere, code compiles and imports what exists, commands have the options shown."""

import ast
import doctest
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from urllib.parse import unquote

import pytest

import aesjax
from experiments.cli import main
from experiments.study.method import Method
from tests.pages import FENCE, NEEDS, PAGES, ROOT, anchors, blocks, fill, links

OTHERWISE = {"STEADY", "UnknownNameError"}  # public, and explained where they are used
OURS = ("aesjax", "agents", "envs", "experiments")


def named(page, root=ROOT):
    return str(page.relative_to(root))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page):
    for link in links(page):
        place, _, anchor = link.partition("#")
        if place.startswith("https://"):
            continue
        target = (page.parent / unquote(place)).resolve() if place else page
        assert target.exists(), link
        assert ROOT in target.parents or target == ROOT, link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


@pytest.mark.parametrize("page", fill.pages(), ids=named)
def test_tables_and_sentences_are_those_of_the_records_and_registries(page):
    text = page.read_text()
    assert fill.filled(text) == text, "python docs/fill_pages.py makes them again"


def test_a_difference_is_not_computed_from_an_arbitrary_run_of_several():
    differences, agent = import_module("filling.differences"), Method("ppo")
    contrast = differences.Contrast("", "grid/*-toy-*-ppo", "toy", agent, agent)
    with pytest.raises(ValueError, match=r"several runs .*: A-toy-100000-ppo, appendix-toy-40000-ppo"):
        differences.scores(contrast, agent, "abrupt")


def test_pages_read_the_times_of_a_record_as_the_benchmark_writes_it():
    from experiments.bench.timing import interleaved

    rates = {"fixed": iter([8.0, 6.0, 4.0]).__next__, "aes": iter([4.0, 5.0, 4.0]).__next__}
    case = interleaved(rates, 3, {"time_of_aes_over_fixed": ("fixed", "aes")})
    time_ratio = import_module("filling.records").time_ratio
    assert time_ratio(case, "aes", "fixed") == case["ratios"]["time_of_aes_over_fixed"]
    assert time_ratio(case, "aes_r", "fixed") == {}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what Brax imports
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=named)
def test_python_blocks_compile_and_import_what_exists(page):
    for at, block in enumerate(blocks(page, "python")):
        tree = compile(block, f"{page.name}, block {at}", "exec", ast.PyCF_ONLY_AST)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
                if find_spec(NEEDS.get(node.module, "envs")) is None:
                    continue
                module = import_module(node.module)
                for name in node.names:
                    assert hasattr(module, name.name) or find_spec(f"{node.module}.{name.name}"), name.name


EXAMPLES = [path for name in OURS for path in sorted((ROOT / name).rglob("*.py")) if ">>> " in path.read_text()]


@pytest.mark.parametrize("path", EXAMPLES, ids=named)
def test_examples_in_docstrings_run(path):
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason="`make test-all` installs it")
    module = import_module(name)
    assert doctest.testmod(module).failed == 0


def shown():
    """(page, words) of every `aesjax` and `python` line in any block of any page."""
    for page in PAGES:
        for kind, body in FENCE.findall(page.read_text()):
            if kind.strip() in ("", "bash"):
                for line in body.splitlines():
                    if line.startswith(("aesjax ", "python ")):
                        yield named(page), shlex.split(line, comments=True)


@pytest.fixture
def options(capsys):
    """Of a command of `aesjax`, from its own help."""

    @cache
    def of(command):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        return set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out))

    return of


def test_commands_have_the_options_shown_and_scripts_exist(options):
    for page, words in shown():
        if words[0] == "aesjax":
            given = {word.partition("=")[0] for word in words[2:] if word.startswith("--")}
            assert given <= options(words[1]), (page, words)
        elif words[1].endswith(".py"):
            assert (ROOT / words[1]).is_file(), (page, words)
        elif words[1] == "-m":
            assert find_spec(words[2]), (page, words)


def test_the_version_is_the_same_wherever_it_stands():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert project["version"] == aesjax.__version__
    assert f"\nversion: {aesjax.__version__}\n" in citation
    assert f"\n## {aesjax.__version__} (" in (ROOT / "CHANGELOG.md").read_text()


def dead(site):
    """(page, link) of every link inside a built site whose file or anchor is absent."""
    pages = {page: page.read_text() for page in site.rglob("*.html") if "_modules" not in page.parts}
    ids = {page: set(re.findall(r'\bid="([^"]+)"', text)) for page, text in pages.items()}
    for page, text in pages.items():
        for link in re.findall(r'href="([^"]+)"', text):
            place, _, anchor = link.partition("#")
            target = (page.parent / unquote(place.partition("?")[0])).resolve() if place else page
            if link.startswith(("http", "mailto:", "data:")) or (target.exists() and not anchor):
                continue
            if not target.exists() or (target in ids and unquote(anchor) not in ids[target]):
                yield named(page, site), link


@pytest.mark.slow
def test_the_site_builds_without_a_warning_or_a_dead_link_and_knows_every_public_name(tmp_path):
    pytest.importorskip("myst_nb", reason="`make docs` and `make test-all` install what the site is built with")
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", str(tmp_path)]
    done = subprocess.run(build, capture_output=True, text=True, cwd=ROOT, timeout=1000)
    assert done.returncode == 0, done.stderr[-4000:]
    assert list(dead(tmp_path)) == []
    from sphinx.util.inventory import InventoryFile

    with (tmp_path / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, place: place)
    known = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    for place in ("aesjax", "agents", "envs", "experiments", "experiments.measure"):
        module = import_module(place)
        names = {name for name in module.__all__ if callable(getattr(module, name)) or name.isupper()}
        assert {name for name in names if f"{place}.{name}" not in known} <= OTHERWISE, place
    signals = (tmp_path / "api" / "schedules.html").read_text()
    assert "temporal-difference errors of the update batch" in signals  # the comment behind a field
    assert "Alias for field" not in signals
