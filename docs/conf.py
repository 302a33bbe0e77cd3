"""Sphinx: the pages of this folder, notebooks, benchmark records and the reference, as one site (`make docs`)."""

import inspect
import re
from functools import cache
from importlib import import_module
from importlib.metadata import version as installed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

project = "aesjax"
author = "aesjax contributors"
copyright = "aesjax contributors"
version = release = installed("aesjax")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # as on GitHub
nb_execution_mode = "off"  # their outputs are committed, and tests run them
suppress_warnings = ["ref.python"]  # several modules have an error of the same name

autodoc_mock_imports = ["stable_baselines3"]
default_role = "code"  # `name` in docstrings is a name, as in Markdown
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "undoc-members": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = f"aesjax {release}"
html_show_copyright = False
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["site.css"]

OUTSIDE = ("benchmarks/", "notebooks/", "proofs/")
WRITTEN: dict[str, list[str]] = {}  # name of a datum or field -> its text
FIELD = re.compile(r"^\s+(\w+): .*?  # (.*)$", flags=re.MULTILINE)


@cache
def comments(cls):
    """Field name -> the comment behind it, of a NamedTuple or dataclass; its authors document fields there."""
    try:
        return dict(FIELD.findall(inspect.getsource(cls)))
    except (OSError, TypeError):
        return {}


def keep(app, what, name, obj, options, lines):
    """Remember texts of data and fields before napoleon takes the text before a colon for a type."""
    if what in ("attribute", "data"):
        WRITTEN[name] = list(lines)


def document_fields(app, what, name, obj, options, lines):
    """The comment behind a field becomes its text, in place of NamedTuple's "Alias for field number 0"."""
    if name in WRITTEN:
        lines[:] = WRITTEN[name]
    if what not in ("attribute", "property"):
        return
    owner, _, field = name.rpartition(".")
    place, _, cls = owner.rpartition(".")
    try:
        text = comments(getattr(import_module(place), cls)).get(field)
    except (ImportError, AttributeError):
        return
    if text or (lines and lines[0].startswith("Alias for field")):
        lines[:] = [text or ""]


def as_written(app, what, name, obj, options, lines):
    """Docstrings here are plain text with names in backticks: no stars, bars or trailing underscores are markup."""
    example = False
    for at, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if example:
            continue
        if line.startswith(":"):  # a field that napoleon made
            head, mark, rest = line.partition(": ")
            lines[at] = head + mark + escaped(rest)
        else:
            lines[at] = escaped(line)


def escaped(line):
    """One line with reStructuredText's marks escaped outside of literals and of napoleon's own text."""
    text = re.sub(r"(?<=\w)`(?=\w)", r"`\\ ", line)  # `Name`s: markup ends only before a space or a mark
    parts = re.split(r"(``.*?``|`[^`]*`|\*\*\w+\*\*|(?<!\S)\*\w+\*(?!\w)|:\w+:`[^`]*`)", text)
    return "".join(part if at % 2 else re.sub(r"([*|]|(?<=\w)_(?!\w))", r"\\\1", part) for at, part in enumerate(parts))


def place_of(target):
    """The page of the site that shows a file of the repository, or None."""
    name = str(target.relative_to(ROOT))
    for folder, page in (("docs/", "/"), ("benchmarks/", "/benchmarks/"), ("experiments/notebooks/", "/notebooks/")):
        if name.startswith(folder) and target.suffix in (".md", ".ipynb"):
            return page + name.removeprefix(folder).removesuffix(target.suffix)
    return "/index" if name == "README.md" else None


def led(text, folder):
    """Links lead to the page of the site that shows a file; links to folders and to other pages become text."""

    def lead(link):
        shown, target = link[1], (folder / link[2]).resolve()
        if not target.is_relative_to(ROOT) or not target.exists():
            return link[0]
        if page := place_of(target):
            return f"{{doc}}`{shown.replace('`', '')} <{page}>`"
        return shown if target.is_dir() or target.suffix == ".md" else link[0]

    return re.sub(r"(?<!!)\[([^\]]*)\]\(((?!https?:)[^)#]+)\)", lead, text)


def inside(app, docname, source):
    """Pages of the repository, with their links resolved."""
    page = Path(app.env.doc2path(docname))
    text = source[0] if page.suffix != ".md" else led(source[0], page.resolve().parent)
    if docname.startswith("benchmarks/") and not text.startswith("# "):  # tables that scripts write
        text = f"# {docname.rpartition('/')[2]}\n\n{text}"
    source[0] = text


def leave_out(app, doctree):
    """Records, proofs and notebooks are built for links to them and are absent from the navigation."""
    if app.env.docname.startswith(OUTSIDE):
        app.env.metadata[app.env.docname]["orphan"] = True


def show_functions():
    """Document the function of every factory: signature, options and docstring are the function's."""
    from aesjax.adaptations import ADAPTATIONS
    from aesjax.schedules import PROXIES, SCHEDULES

    places = [import_module(place) for place in ("aesjax", "aesjax.schedules", "aesjax.adaptations")]
    for factory in (*SCHEDULES.values(), *PROXIES.values(), *ADAPTATIONS.values()):
        make = factory.__wrapped__
        for place in places:
            if getattr(place, make.__name__, None) is factory:
                setattr(place, make.__name__, make)


def setup(app):
    """Connect the functions above."""
    show_functions()
    app.connect("autodoc-process-docstring", keep, priority=100)
    app.connect("autodoc-process-docstring", document_fields, priority=800)
    app.connect("autodoc-process-docstring", as_written, priority=900)
    app.connect("source-read", inside)
    app.connect("doctree-read", leave_out)
