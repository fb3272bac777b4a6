"""Pages at 360 px: nothing lies over something else, nothing is broken where no word ends (V11)."""

import re

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


# How many lines each is drawn in.
LINES = """all => all.map(each => {
  const texts = document.createTreeWalker(each, NodeFilter.SHOW_TEXT), tops = new Set()
  while (texts.nextNode()) {
    const range = document.createRange()
    range.selectNode(texts.currentNode)
    for (const one of range.getClientRects()) tops.add(Math.round(one.top))
  }
  return tops.size
})"""
LONG = "amy-the-long-named-agent.of-a-pod"


@pytest.mark.storm
def test_v11_on_a_phone_no_text_lies_over_another_and_no_short_word_is_broken() -> None:
    with made_scene() as scene:
        scene.start("bob")
        scene.start(LONG)
        scene.works("bob")
        body = {"text": "Use the csv module, not pandas"}
        scene.pen.client().post("agents", "bob", "messages", body=body)
        with made_view(scene) as view, view.page(360, 760) as page:
            page.goto("/agents/bob/messages")
            expect(page.locator("h1")).to_have_css("font-variant-numeric", "normal")
            assert not overlaps(page, ".message > *")
            page.goto("/usage")
            assert not overlaps(page, ".track-hours span")
            page.goto("/agents/bob")
            page.get_by_role("link", name="Why?").tap()
            expect(page).to_have_url(f"{view.address}/agents/bob/explain")
            expect(page.locator(".content").get_by_text("because of the hook")).to_be_in_viewport()
            source = page.get_by_role("cell", name="hook UserPromptSubmit")
            expect(source).to_be_visible()
            # Two words that are not broken, and when that was.
            assert source.evaluate_all(LINES) == [3]
            expect(source.get_by_text(re.compile(r"^\d\d:\d\d:\d\d$"))).to_be_visible()
            says = page.get_by_role("cell", name="received").bounding_box()
            assert says["width"] > 120
            page.goto("/changes/bob")
            page.get_by_role("link", name="All changes").click()
            expect(page).to_have_url(f"{view.address}/changes")


@pytest.mark.storm
def test_v5_v11_on_a_phone_a_task_stands_above_the_form_and_its_name_and_state_are_whole() -> None:
    with made_scene() as scene:
        scene.taker("tom")
        client = scene.pen.client()
        task = client.post("agents", "tom", "task", body={"prompt": "Count [[say One.]]"})
        with made_view(scene) as view, view.page(360, 760) as page:
            page.goto(f"/tasks/{task['task_id']}")
            card = page.locator(f"section[aria-label='task {task['task_id']}']")
            expect(card.locator("header .state")).to_contain_text("completed")
            for part in ("h2", ".state", ".right"):
                assert card.locator("header").locator(part).bounding_box()["height"] < 30, part
            form = page.get_by_role("region", name="New task")
            assert card.bounding_box()["y"] < form.bounding_box()["y"]
            card.get_by_role("link", name="All tasks").click()
            expect(page).to_have_url(f"{view.address}/tasks")


@pytest.mark.storm
def test_v8_v11_on_a_phone_a_short_card_is_short_beside_a_tall_one() -> None:
    with made_scene() as scene:
        for name, command in (("amy", "make"), ("bob", "\n".join(map(str, range(30))))):
            scene.start(name)
            scene.works(name)
            scene.ask(name, "Bash", command=command)
        with made_view(scene) as view, view.page(360, 760) as page:
            page.goto("/approvals")
            cards = page.locator(".inbox > .ask")
            expect(cards).to_have_count(2)
            short, tall = (cards.nth(at).bounding_box()["height"] for at in (0, 1))
            assert short < 200 < tall
            # Who sees the beginning alone knows that there is more.
            expect(cards.nth(1).locator(".top")).to_contain_text("30 lines")
            expect(cards.nth(0).locator(".top")).not_to_contain_text("line")
            # What follows stands below the card that is seen, and below the tall one when that is.
            inbox, after = page.locator(".inbox"), page.get_by_role("region", name="Decided lately")
            assert after.bounding_box()["y"] - cards.nth(0).bounding_box()["y"] < short + 40
            cards.nth(1).evaluate("card => card.scrollIntoView({inline: 'start'})")
            page.wait_for_function(f"() => document.querySelector('.inbox').offsetHeight >= {tall}")
            assert after.bounding_box()["y"] >= cards.nth(1).bounding_box()["y"] + tall
            assert inbox.evaluate("box => box.scrollTop") == 0


def test_v11_on_a_phone_an_agents_name_stands_beside_what_stops_it_and_why_before_all_else() -> (
    None
):
    with made_scene() as scene:
        scene.start("amy")
        scene.idle("amy")
        scene.start("bob")
        scene.works("bob")
        scene.ask("bob", "Bash", command="make")
        with made_view(scene) as view, view.page(360, 760) as page:
            page.goto("/agents/bob/explain")
            table = page.locator("table.plain")
            expect(table).to_be_in_viewport()
            name, stop, state, card = (
                page.locator(".panel").locator(each).first.bounding_box()["y"]
                for each in ("h1", "button:text('Stop…')", ".top .state", ".ask")
            )
            assert abs(name - stop) < 30 < state - name
            assert table.bounding_box()["y"] < card
            page.goto("/agents/amy/terminal")
            stop = page.get_by_role("button", name="Stop…").bounding_box()["y"]
            chip = page.locator(".panel .top .state")
            expect(chip).to_have_text("idle")  # short enough to stand beside the button
            assert chip.bounding_box()["y"] > stop + 30


def test_v4_v11_on_a_phone_a_row_says_all_of_what_its_agent_waits_for() -> None:
    with made_scene() as scene:
        scene.start(LONG)
        scene.works(LONG)
        scene.ask(LONG, "mcp__a-server__a-tool", path="/a")
        with made_view(scene) as view, view.page(360, 760) as page:
            who = page.locator(f"[data-item='agent:{LONG}'] .who")
            expect(who).to_contain_text("permission: mcp__a-server__a-tool")
            cut = who.evaluate(
                "e => [e.scrollWidth - e.clientWidth, e.scrollHeight - e.clientHeight]"
            )
            assert max(cut) <= 1, cut


def test_v11_at_no_width_does_the_bar_overflow_or_a_word_of_it_lie_over_another() -> None:
    with made_scene() as scene:
        scene.start("bob")
        scene.uses("bob", 1_000_000, 1234.5)
        scene.works("bob")
        scene.ask("bob", "Bash", command="make")
        with made_view(scene) as view, view.page(360, 760) as page:
            expect(page.locator(".facts")).to_contain_text("$1,234.50")
            for width in (320, 360, 720, 721, 740, 768, 820, 920, 921, 1020, 1021, 1180, 1181):
                page.set_viewport_size({"width": width, "height": 760})
                wide = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, (width, wide)
                assert not overlaps(page, ".bar .brand, .bar .nav a, .bar .facts > *"), width
