"""The overview in a real browser: swiping through the inbox, what else runs on this machine
(V3, V4, V8)."""

import json

import pytest
from playwright.sync_api import Page, expect

from tests.hub.pen import made_pen
from tests.web.page import made_view
from tests.web.scene import made_scene

pytestmark = pytest.mark.storm


def swipe(page: Page, distance: int) -> None:
    """With a finger, over the inbox."""
    box = page.locator(".inbox").bounding_box()
    assert box is not None
    begin, y = box["x"] + (box["width"] - distance) / 2, box["y"] + 30
    session = page.context.new_cdp_session(page)

    def touch(kind: str, *points: dict[str, float]) -> None:
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": list(points)})

    touch("touchStart", {"x": begin, "y": y})
    for part in range(1, 11):
        touch("touchMove", {"x": begin + distance * part / 10, "y": y})
    touch("touchEnd")


def test_v8_on_a_phone_a_swipe_leads_to_the_next_that_waits() -> None:
    with made_scene() as scene:
        for name in ("amy", "bob"):
            scene.start(name)
            scene.works(name)
            scene.ask(name, "Bash", command=f"make {name}")
        with made_view(scene) as view, view.page(360, 740) as page:
            first = page.get_by_role("article", name="permission of amy")
            second = page.get_by_role("article", name="permission of bob")
            expect(first).to_be_in_viewport(ratio=0.95)
            # The next one shows that it is there.
            expect(second).to_be_in_viewport()
            expect(second).not_to_be_in_viewport(ratio=0.5)
            swipe(page, -250)
            expect(second).to_be_in_viewport(ratio=0.95)
            expect(first).not_to_be_in_viewport(ratio=0.5)
            swipe(page, 250)
            expect(first).to_be_in_viewport(ratio=0.95)


def test_v3_v4_what_only_a_look_has_found_is_shown_and_leads_nowhere() -> None:
    with made_pen() as other, made_scene() as scene:
        other.start()
        port = json.loads((other.root / "hub.json").read_text())["port"]
        with made_view(scene, looks_at=port) as view, view.page() as page:
            card = page.get_by_role("region", name="Other components")
            expect(card.locator(".row")).to_have_count(1)
            expect(card.locator(".row")).to_contain_text("another home")
            assert card.locator("a, button").count() == 0
            other.kill_hub()
            expect(card.locator(".row")).to_contain_text("does not answer")
            expect(card.locator(".row")).to_contain_text("unreachable")
