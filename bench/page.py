"""Row 21: the web view's page with many agents, in Chromium, against a real view and hub."""

import functools
import gzip
import http.server
import itertools
import json
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bullpen.web
from bench.hubs import hub_home, launch, run
from bench.ports import reserved_port
from bench.processes import rss_mb
from bench.table import PREFIX, WAIT_SECONDS, Row, Skipped, interleaved
from bullpen.home.paths import HUB, Home
from bullpen.hot import wire
from bullpen.web.token import ensure_token

STATIC = Path(bullpen.web.__file__).with_name("static")
PER_SECOND = 50
MOST_SCRIPT_MB, MOST_VIEW_MB = 0.15, 60.0
ARGUMENTS = ["--disable-gpu", "--disable-dev-shm-usage"]
AGENTS = "[data-item^='agent:']"
# When the first frame with agents in it was handed on to be shown.
WATCH = f"""new MutationObserver((_, own) => {{
    if (!document.querySelector("{AGENTS}")) return
    own.disconnect()
    requestAnimationFrame(() => setTimeout(() => {{ window.painted = performance.now() }}))
}}).observe(document, {{childList: true, subtree: true}})"""


def rows(short: bool) -> Iterator[Row]:
    """How much it loads, how soon it shows something true, how busy it is, how big its view."""
    if not (STATIC / "index.html").exists():
        raise Skipped("the page is not built: make setup, with Node")
    yield Row("21", "script of the first page, gzip", _script_mb(), MOST_SCRIPT_MB, 1.0, "MB")
    count, rounds, seconds = (3, 1, 1.0) if short else (200, 9, 10.0)
    with hub_home() as (home, env), _view(home, env) as address, _browser() as browser:
        launch(home, count, at_once=4)
        page = _logged_in(browser, address, ensure_token(home))
        page.wait_for_function(
            f'n => document.querySelectorAll("{AGENTS}").length === n', arg=count
        )
        with _still_copy(page) as copy:
            shown, still = interleaved(
                rounds,
                functools.partial(_paint_seconds, page, f"{address}/"),
                functools.partial(_paint_seconds, page, copy),
            )
        yield Row("21", f"first paint of {count} agents (of a still copy)", shown, still, 2.0)
        page.goto(f"{address}/")
        page.locator(AGENTS).first.wait_for()
        with _changing(home, count):
            busy = _busy_seconds(page, seconds)
        what = f"main thread's CPU, {count} agents, {PER_SECOND} changes/s"
        yield Row("21", what, busy, seconds, 0.4)
        pid = int(json.loads(run(env, "web", "status", "--json"))["pid"])
        yield Row("21", "view's memory (of 60 MB)", rss_mb(pid), MOST_VIEW_MB, 1.0, "MB")


def _script_mb() -> float:
    loaded = re.findall(r'src="/(assets/[^"]+\.js)"', (STATIC / "index.html").read_text())
    return sum(len(gzip.compress((STATIC / name).read_bytes())) for name in loaded) / 1e6


@contextmanager
def _view(home: Home, env: dict[str, str]) -> Iterator[str]:
    with reserved_port() as port:
        (home.root / "web").mkdir(exist_ok=True)
        (home.root / "web" / "config.yaml").write_text(f"bind: 127.0.0.1\nport: {port}\n")
        run(env, "web", "start")
        try:
            yield f"https://127.0.0.1:{port}"
        finally:
            run(env, "web", "stop")


@contextmanager
def _browser() -> Iterator[Any]:
    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if program is None:
        raise Skipped("chromium is not installed")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise Skipped("playwright is not installed") from error
    with (
        # Chromium may still be writing there when it says that it has ended.
        tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as own,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(
            executable_path=program,
            args=ARGUMENTS,
            env={**os.environ, "HOME": own},
            timeout=WAIT_SECONDS * 1000,
        )
        try:
            yield browser
        finally:
            browser.close()


def _logged_in(browser: Any, address: str, token: str) -> Any:
    context = browser.new_context(ignore_https_errors=True, reduced_motion="reduce")
    context.set_default_timeout(WAIT_SECONDS * 1000)
    page = context.new_page()
    page.goto(f"{address}/?token={token}&name=Bench", wait_until="commit")
    page.wait_for_url(f"{address}/")
    page.locator(AGENTS).first.wait_for()
    page.add_init_script(WATCH)
    return page


@contextmanager
def _still_copy(page: Any) -> Iterator[str]:
    """What the page shows now, without script, from a plain server of files."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as scratch:
        shutil.copytree(STATIC / "assets", Path(scratch, "assets"))
        whole = re.sub(r"<script.*?</script>", "", page.content(), flags=re.DOTALL)
        Path(scratch, "index.html").write_text(whole)
        handler = functools.partial(_Quiet, directory=scratch)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}/"
            finally:
                server.shutdown()
                thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def _paint_seconds(page: Any, address: str) -> float:
    page.goto(address)
    page.wait_for_function("() => window.painted")
    return float(page.evaluate("() => window.painted")) / 1000


def _busy_seconds(page: Any, seconds: float) -> float:
    """Of its main thread, in that time: CPU, so that what else runs here does not count."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def spent() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == "ThreadTime"))

    before, began = spent(), time.monotonic()
    page.wait_for_timeout(seconds * 1000)
    return (spent() - before) * seconds / (time.monotonic() - began)


@contextmanager
def _changing(home: Home, count: int) -> Iterator[None]:
    """Agents begin and end turns, in all so many times a second, as their hooks tell."""
    stop = threading.Event()
    path = str(home.socket(HUB))

    def tell() -> None:
        began = time.monotonic()
        for number in itertools.count():
            if stop.wait(max(0.0, began + number / PER_SECOND - time.monotonic())):
                return
            event = "UserPromptSubmit" if number // count % 2 == 0 else "Stop"
            body = json.dumps({"hook_event_name": event, "prompt": "go on"}).encode()
            target = f"/agents/agent-{number % count}/hooks"
            wire.request(path, "POST", target, {"content-type": "application/json"}, body, 60.0)

    thread = threading.Thread(target=tell)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
