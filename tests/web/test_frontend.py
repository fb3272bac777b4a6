"""The sources of the page: their rules in Node, their size, what they are built with (V11)."""

import gzip
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bullpen.web.files import HOW_TO_BUILD
from tests.pages import PROJECT
from tests.web.page import FRONTEND, STATIC

MOST_SCRIPT = 150 * 1000


def test_the_lock_file_names_exact_versions_and_no_place_to_fetch_them_from() -> None:
    text = (FRONTEND / "package-lock.json").read_text()
    packages = json.loads(text)["packages"]
    assert all("resolved" not in one for one in packages.values())
    assert all("integrity" in one for path, one in packages.items() if path)
    wanted = json.loads((FRONTEND / "package.json").read_text())
    for kind in ("dependencies", "devDependencies"):
        assert all(re.fullmatch(r"[0-9.]+", each) for each in wanted[kind].values())


def test_no_source_turns_text_into_markup() -> None:
    sources = [*FRONTEND.glob("src/**/*.ts*"), FRONTEND / "index.html"]
    assert len(sources) > 20
    for path in sources:
        found = re.search(r"innerHTML|outerHTML|insertAdjacentHTML|eval\(", path.read_text())
        assert found is None, path


def test_what_builds_the_page_is_there_and_in_readme_before_the_installation() -> None:
    command = HOW_TO_BUILD.partition(" ")[0]
    assert os.access(PROJECT / command, os.X_OK)
    readme = (PROJECT / "README.md").read_text()
    assert 0 < readme.index(f"$ {command} ") < readme.index("$ pipx install")


def test_v11_the_first_page_needs_little_script() -> None:
    if not (STATIC / "index.html").exists():
        pytest.skip("the page is not built")
    page = (STATIC / "index.html").read_text()
    loaded = re.findall(r'(?:src|href)="/(assets/[^"]+\.(?:js|css))"', page)
    sizes = {name: len(gzip.compress((STATIC / name).read_bytes())) for name in loaded}
    assert any(name.endswith(".js") for name in sizes)
    assert sum(size for name, size in sizes.items() if name.endswith(".js")) < MOST_SCRIPT
    assert "<script>" not in page


@pytest.mark.slow
def test_the_rules_of_the_page_hold(tmp_path: Path) -> None:
    compiler = FRONTEND / "node_modules" / ".bin" / "tsc"
    node = shutil.which("node")
    if node is None or not compiler.exists():
        pytest.skip("Node or what the page is built with is not installed")
    out = tmp_path / "out"
    made = subprocess.run(
        [compiler, "-p", "tsconfig.test.json", "--outDir", out],
        cwd=FRONTEND,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout
    (out / "package.json").write_text('{"type": "module"}')
    (out / "node_modules").symlink_to(FRONTEND / "node_modules")
    ran = subprocess.run(
        [node, "--test", *sorted(out.glob("test/*.test.js"))],
        cwd=out,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    assert int(re.findall(r"pass ([0-9]+)", ran.stdout)[0]) >= 15
