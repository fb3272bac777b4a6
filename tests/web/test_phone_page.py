"""Pages at 360 px: nothing lies over something else, nothing is broken where no word ends (V11)."""

import pytest
from playwright.sync_api import Page, expect

from tests.web.page import made_view
from tests.web.scene import made_scene

pytestmark = pytest.mark.slow

# The words of two elements that are drawn over each other.
OVERLAPS = """all => {
  const rects = each => {
    const range = document.createRange()
    range.selectNodeContents(each)
    return [...range.getClientRects()]
  }
  const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
    && a.top < b.bottom - 1 && b.top < a.bottom - 1
  return all.flatMap((one, at) => all.slice(at + 1)
    .filter(other => rects(one).some(a => rects(other).some(b => over(a, b))))
    .map(other => [one.textContent, other.textContent]))
}"""


def overlaps(page: Page, elements: str) -> list[list[str]]:
    """The texts of those that lie over each other."""
    page.locator(elements).first.wait_for()
    found: list[list[str]] = page.eval_on_selector_all(elements, OVERLAPS)
    return found


def test_v11_on_a_phone_no_text_lies_over_another() -> None:
    with made_scene() as scene:
        scene.start("bob")
        body = {"text": "Use the csv module, not pandas"}
        scene.pen.client().post("agents", "bob", "messages", body=body)
        with made_view(scene) as view, view.page(360, 760) as page:
            page.goto("/agents/bob/messages")
            expect(page.locator("h1")).to_have_css("font-variant-numeric", "normal")
            assert not overlaps(page, ".message > *")
