"""The view of a scene and pages of it in Chromium, watched for whatever must not happen.

    with made_scene() as scene, made_view(scene) as view, view.page() as page:
        page.goto("/approvals")

A page fails its test when it leaves: for an error on its console, for anything that its policy
refused, for a request to another host, for an exception that nobody caught.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import bullpen.web
from tests.web.browser import browser_env, browser_program
from tests.web.scene import Scene

STATIC = Path(bullpen.web.__file__).with_name("static")
FRONTEND = Path(bullpen.web.__file__).with_name("frontend")
SECONDS = 90.0
ARGUMENTS = ("--disable-gpu", "--disable-dev-shm-usage", "--font-render-hinting=none")
# Answers of the view that a test wants: the browser itself writes them to the console.
TOLD = "Failed to load resource"


@dataclass
class View:
    """A view that runs."""

    scene: Scene
    address: str
    token: str
    browser: Any = field(repr=False)
    is_trusted: bool = False

    @contextlib.contextmanager
    def page(
        self,
        width: int = 1400,
        height: int = 900,
        *,
        name: str = "Tess",
        dark: bool = False,
        errors: tuple[str, ...] = (),
    ) -> Iterator[Any]:
        """A page of somebody of that name, logged in. `errors`: what its console may say, too."""
        context = self.browser.new_context(
            base_url=self.address,
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            has_touch=width < 600,
            ignore_https_errors=not self.is_trusted,
        )
        context.set_default_timeout(SECONDS * 1000)
        page = context.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(f"exception: {error}"))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("request", lambda asked: self._look(asked.url, wrong))
        page.goto(f"/?token={self.token}&name={name}", wait_until="commit")
        page.wait_for_url(f"{self.address}/")
        page.locator("main .card").first.wait_for()
        try:
            yield page
        finally:
            context.close()
        bad = [one for one in wrong if not any(each in one for each in errors)]
        assert not bad, bad

    def _look(self, url: str, wrong: list[str]) -> None:
        if not url.startswith((self.address, self.address.replace("https", "wss"), "data:")):
            wrong.append(f"request to {url}")


@contextlib.contextmanager
def made_view(
    scene: Scene,
    looks_at: int | None = None,
    *,
    is_trusted: bool = False,
    is_whole: bool = False,
) -> Iterator[View]:
    """Served to Chromium. Of the machine's other components it sees those at that port alone. With
    `is_trusted` the browser trusts the home's CA, else it takes any certificate; `is_whole`: it
    notifies."""
    program = browser_program(is_whole=is_whole)
    if not (STATIC / "index.html").exists():
        pytest.skip("the page is not built: make setup, with Node")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=SECONDS * 1000)
    port = scene.pen.free_port()
    (scene.pen.root / "web").mkdir(exist_ok=True)
    seen = looks_at or scene.pen.free_port()
    discovery = f"discovery: {{port_range: {seen}-{seen}}}"
    (scene.pen.root / "web" / "config.yaml").write_text(
        f"bind: 127.0.0.1\nport: {port}\n{discovery}\n"
    )
    started = scene.pen.cli("web", "start")
    assert started.code == 0, started
    try:
        env = {**os.environ, "HOME": scene.pen.env["HOME"]}
        if is_trusted:
            env = browser_env(scene.pen.root.parent / "browser", scene.pen.root / "web" / "ca.pem")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=program, args=list(ARGUMENTS), env=env, timeout=SECONDS * 1000
            )
            try:
                yield View(scene, f"https://127.0.0.1:{port}", _token(scene), browser, is_trusted)
            finally:
                browser.close()
    finally:
        stopped = scene.pen.cli("web", "stop")
        assert stopped.code == 0, stopped


def _token(scene: Scene) -> str:
    for line in (scene.pen.root / ".env").read_text().splitlines():
        name, _, value = line.partition("=")
        if name == "BULLPEN_WEB_TOKEN":
            return value
    raise AssertionError("the view made no token")


def violations(page: Any) -> list[str]:
    """What axe has to say of the page as it is now."""
    source = (FRONTEND / "node_modules" / "axe-core" / "axe.min.js").read_text()
    page.evaluate(source + ";0")
    found = page.evaluate(
        "async () => await axe.run(document, "
        "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']})"
    )
    assert "color-contrast" in {one["id"] for one in found["passes"]}, "it looked at nothing"
    bad = found["violations"]
    return [f"{one['id']}: {node['html'][:300]}" for one in bad for node in one["nodes"]]
