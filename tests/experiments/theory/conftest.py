"""The theory is checked in double precision; every test of this folder runs with it switched on."""

import jax
import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if "experiments/theory" in item.nodeid:
            item.add_marker("theory")


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield
