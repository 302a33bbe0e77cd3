"""A headless browser for tests of the page, where the machine has one."""

import os
import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
DESK, PHONE = {"width": 1440, "height": 900}, {"width": 360, "height": 780}


def browser_path():
    """Where a Chromium is: what $AESJAX_BROWSER names, else the first on the path; None without one."""
    return os.environ.get("AESJAX_BROWSER") or next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def chromium():
    """A running browser; skips the test, with the reason, where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = browser_path()
    if path is None:
        pytest.skip(f"no browser found: none of {', '.join(NAMES)} is on the path and AESJAX_BROWSER is not set")
    as_root = (
        ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    )  # Chromium refuses root otherwise
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=as_root)
        yield browser
        browser.close()
