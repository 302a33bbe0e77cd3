"""A study as files, and a page as a browser reads it."""

import json
from html.parser import HTMLParser

import polars as pl

from experiments.study.store import write_manifest
from tests.experiments.measure.synthetic import config, make_curves, manifest

TROUBLED = ("SAC", "SAC+AES", "SAC+AES-R", "PPO", "PPO+AES")  # methods of the study with broken runs
SMALL_WINDOW = "recent: share 0.05 of 1000 transitions is 512 (51 %), its smallest window"
VOID = {"meta", "img", "input", "br", "hr", "line", "wbr"}


class Page(HTMLParser):
    """Collects what a browser would load, and checks that every tag that opens also closes."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.sources, self.tags, self.texts = [], [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.links += [attrs["href"]] if "href" in attrs else []
        self.sources += [attrs["src"]] if "src" in attrs else []

    def handle_data(self, data):
        self.texts.append(data)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def save(directory, curves, *, diverged=(), floor=3.0, **extra):
    """Write config, curves and a manifest (with ``extra``) into ``directory``."""
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config()))
    curves.write_parquet(directory / "curves.parquet")
    write_manifest(directory, manifest(curves, floor, diverged) | extra)
    return directory


def reseal(directory):
    """Write the checksums of a study's files as they are now."""
    manifest = json.loads((directory / "manifest.json").read_text())
    write_manifest(directory, manifest)


def configure(directory, **changes):
    """Change the configuration of a study and its checksum."""
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    reseal(directory)


def aimless():
    """Curves of a study in which SAC gains nothing over the random policy (return 3), and AES is at its upper clip."""
    curves = make_curves(("SAC", "SAC+AES"), ("steady", "abrupt"), range(1, 6), every=2_000)
    level = 3 + 0.4 * (pl.col("seed") - 3 + 0.2)  # at seeds 1 to 5 on both sides of the random policy
    better = 2 * (pl.col("method") == "SAC+AES")
    after_updates = pl.when(pl.col("step") > 0)
    return curves.with_columns(
        return_mean=level + better + 0.01 * pl.col("return_mean").clip(0, 1),
        at_max=after_updates.then((pl.col("method") == "SAC+AES").cast(float)),
        at_min=after_updates.then(0.0),
        entropy_weight=pl.when(pl.col("method") == "SAC+AES").then(1.0).otherwise(0.2),
        weight_raw=4.0 + pl.col("step") / 50_000,
    )
