"""The browser of tests, and a person's home in which it trusts a CA."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def browser_program(*, is_whole: bool = False) -> str:
    """Chromium; without it or without Playwright there is no test. The part of it that shows
    nothing takes a third less CPU, and notifies nobody."""
    pytest.importorskip("playwright.sync_api")
    shell = None if is_whole else shutil.which("chromium-headless-shell")
    found = shell or shutil.which("chromium")
    if found is None:
        pytest.skip("chromium is not installed")
    return found


def browser_env(home: Path, authority: Path | None = None) -> dict[str, str]:
    """The variables of a browser of somebody whose home is that new directory, and who trusts that
    CA besides those that the browser brings along."""
    certutil = shutil.which("certutil")
    if certutil is None:
        pytest.skip("certutil (libnss3-tools) is not installed")
    database = home / ".pki" / "nssdb"
    database.mkdir(parents=True)
    where = ["-d", f"sql:{database}"]
    subprocess.run([certutil, *where, "-N", "--empty-password"], check=True)
    if authority is not None:
        trust = ["-A", "-t", "C,,", "-n", "bullpen", "-i", str(authority)]
        subprocess.run([certutil, *where, *trust], check=True)
    return {**os.environ, "HOME": str(home)}
