"""The page of usage in a real browser: who used how much when, by agent and pod, and who was in
which state (V10)."""

import time

import pytest
from playwright.sync_api import Page, expect

from bullpen.model.usage_series import QUARTER_SECONDS
from tests.waiting import wait_until
from tests.web.page import made_view
from tests.web.scene import Scene, made_scene

pytestmark = pytest.mark.storm

FIGURES = "all => all.slice(1).map(one => one.textContent.trim())"


def figures(page: Page) -> list[str]:
    """What stands under the plot: who used how much."""
    return page.locator(".figures > span").evaluate_all(FIGURES)


def filled(scene: Scene) -> None:
    # Where the hub is it is noon: midnight would make two days of one.
    scene.pen.env["TZ"] = f"NOON{time.gmtime().tm_hour - 12:+}"
    scene.start("amy", pod="shop")
    scene.start("bob", pod="shop")
    scene.start("cleo")
    # What is used is shown by quarters of an hour: the end of one would make two columns of one.
    wait_until(lambda: time.time() % QUARTER_SECONDS < QUARTER_SECONDS - 20)
    for name, tokens, usd in (("amy", 41_000, 2.5), ("bob", 9_000, 0.5), ("cleo", 1_000, 0.25)):
        scene.uses(name, tokens, usd)
    scene.idle("bob")
    scene.works("amy", "Bash")


def test_v10_tokens_and_cost_over_time_by_agent_and_by_pod() -> None:
    with made_scene() as scene:
        filled(scene)
        with made_view(scene) as view, view.page() as page:
            page.goto("/usage")
            wait_until(lambda: figures(page) == ["amy $2.50", "bob $0.50", "cleo $0.25"])
            bars = page.locator(".columns rect[class^=series]")
            expect(bars).to_have_count(3)
            heights = [float(bar.get_attribute("height") or 0) for bar in bars.all()]
            assert heights[0] == pytest.approx(5 * heights[1], rel=0.01)
            page.get_by_role("button", name="by pod").click()
            wait_until(lambda: figures(page) == ["shop $3.00", "no pod $0.25"])
            page.get_by_role("button", name="tokens", exact=True).click()
            wait_until(lambda: figures(page) == ["shop 50k", "no pod 1k"])
            for span in ("7 days", "30 days", "Everything"):
                page.get_by_role("button", name=span).click()
                expect(bars).to_have_count(2)
                wait_until(lambda: figures(page) == ["shop 50k", "no pod 1k"])
            # Under the pointer stands what was used just then, elsewhere in time nothing.
            box = bars.first.bounding_box()
            assert box is not None
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 2)
            expect(page.locator(".figures > span").first).not_to_have_text("All of it")
            assert figures(page) == ["shop 50k", "no pod 1k"]
            scene.uses("cleo", 7_000, 0.25)  # totals: 6,000 more
            page.mouse.move(0, 0)
            page.get_by_role("button", name="7 days").click()
            wait_until(lambda: figures(page) == ["shop 50k", "no pod 7k"])


def test_v10_a_line_for_each_agent_says_how_long_it_was_what() -> None:
    with made_scene() as scene:
        filled(scene)
        with made_view(scene) as view, view.page() as page:
            page.goto("/usage")
            line = page.locator(".tracks a", has_text="amy").locator("+ .track-line")
            expect(line.locator("i.bg-work")).to_have_count(1)
            scene.hook("amy", "Stop")
            expect(line.locator("i.bg-idle")).not_to_have_count(0)
            last = line.locator("i").last
            expect(last).to_have_class("bg-idle")
            worked = line.locator("i.bg-work").first
            assert "working" in (worked.get_attribute("title") or "")
            page.get_by_role("button", name="24 h").click()
            expect(line.locator("i").last).to_have_class("bg-idle")
