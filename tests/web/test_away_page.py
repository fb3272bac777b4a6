"""The page when the network or the view is away for a while: it goes on, and has missed nothing
(V1, V4, V11)."""

import contextlib

import pytest
from playwright.sync_api import Page, Route, expect

from tests.waiting import wait_until
from tests.web.page import made_view
from tests.web.scene import Scene, made_scene

pytestmark = pytest.mark.slow


MOST_STREAMS = 4  # as in live/slots.ts: a browser has six connections to a host


def standing(scene: Scene) -> None:
    for name in ("amy", "bob"):
        scene.start(name)
    scene.idle("amy", "bob")


def expect_behind(page: Page, why: str) -> None:
    """It says so, and what it shows is of the past."""
    expect(page.get_by_role("alert")).to_contain_text(why)
    expect(page.locator("[data-item='agent:amy']")).to_contain_text("was idle")


def expect_whole(page: Page) -> None:
    """It is live, with all that happened meanwhile, each once."""
    expect(page.locator("[data-item='agent:amy']")).to_contain_text("working · Bash")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator(".live")).to_have_text("live")
    rows = page.locator("[data-item^='agent:']")
    expect(rows).to_have_count(3)
    names = rows.evaluate_all("all => all.map(each => each.dataset.item)")
    assert sorted(names) == ["agent:amy", "agent:bob", "agent:cleo"]
    expect(page.locator(".news li", has_text="bob ended")).to_have_count(1)
    expect(page.locator(".news li", has_text="cleo started")).to_have_count(1)
    ids = page.locator("[data-news]").evaluate_all("all => all.map(each => each.dataset.news)")
    assert len(set(ids)) == len(ids)


def happen(scene: Scene) -> None:
    scene.works("amy", "Bash")
    scene.pen.stop("bob")
    scene.start("cleo")


def test_v4_v11_a_device_that_was_offline_has_missed_nothing_and_shows_nothing_twice() -> None:
    with made_scene() as scene:
        standing(scene)
        with made_view(scene) as view, view.page(errors=("ERR_",)) as page:
            expect(page.locator("[data-item='agent:amy']")).to_contain_text("idle")
            page.context.set_offline(True)
            expect_behind(page, "this device is offline")
            happen(scene)
            page.context.set_offline(False)
            expect_whole(page)
            scene.hook("amy", "Stop")
            expect(page.locator("[data-item='agent:amy']")).to_contain_text("idle")


@pytest.mark.storm
def test_v1_v4_a_page_goes_on_with_a_new_certificate_of_the_ca_that_its_browser_trusts() -> None:
    with made_scene() as scene:
        standing(scene)
        pen = scene.pen
        with (
            made_view(scene, is_trusted=True) as view,
            view.page(errors=("ERR_",)) as page,
        ):
            expect(page.locator("[data-item='agent:amy']")).to_contain_text("idle")
            files = {
                name: (pen.root / "web" / name).read_bytes() for name in ("ca.pem", "cert.pem")
            }
            assert pen.cli("web", "stop").code == 0
            expect_behind(page, "the view does not answer")
            happen(scene)
            assert pen.cli("web", "start", "--regen-cert").code == 0
            assert (pen.root / "web" / "ca.pem").read_bytes() == files["ca.pem"]
            assert (pen.root / "web" / "cert.pem").read_bytes() != files["cert.pem"]
            expect_whole(page)


# What each shows of its own, once it has been told.
PLACES = {
    "/approvals": "[aria-label='permission of bob'] tr.add",
    "/agents/amy/history": ".news li",
    "/agents/amy/changes": ".content .empty",
}
# A link that is pressed while the page is open.
FOLLOW = """to => {
  const link = Object.assign(document.createElement('a'), { href: to })
  document.body.append(link)
  link.click()
  link.remove()
}"""


def test_v4_what_was_opened_while_the_hub_was_away_is_there_when_it_is_back() -> None:
    with made_scene() as scene:
        standing(scene)
        scene.ask("bob", "Edit", file_path="/a", old_string="a", new_string="b")
        with made_view(scene) as view, contextlib.ExitStack() as opened:
            errors = ("503", "ERR_")
            pages = {to: opened.enter_context(view.page(errors=errors)) for to in PLACES}
            scene.pen.kill_hub()
            for to, page in pages.items():
                expect(page.locator(".banner")).to_contain_text("Behind by")
                page.evaluate(FOLLOW, to)
                expect(page.locator("main .problem").first).to_be_visible()
            scene.pen.start()
            for to, page in pages.items():
                expect(page.locator(f"main {PLACES[to]}").first).to_be_visible()
                expect(page.locator(".problem")).to_have_count(0)
            allow = pages["/approvals"].get_by_role("button", name="Allow")
            expect(allow).to_be_enabled()


def test_v4_more_tabs_than_a_browser_has_connections_are_all_of_now() -> None:
    with made_scene() as scene:
        standing(scene)
        scene.works("bob")
        with made_view(scene) as view, view.page() as first:
            tabs = [first]
            for _ in range(6):
                tabs.append(first.context.new_page())
                tabs[-1].goto("/")
                expect(tabs[-1].locator("[data-item='agent:amy']")).to_contain_text("idle")
            scene.works("amy", "Bash")
            for tab in tabs:
                expect(tab.locator("[data-item='agent:amy']")).to_contain_text("working · Bash")
                expect(tab.locator(".live")).to_be_visible()
            streaming = [tab for tab in tabs if tab.locator(".live").text_content() == "live"]
            assert len(streaming) == MOST_STREAMS
            # Whoever waits gets the place of a tab that is closed.
            waiting = [tab for tab in tabs if tab not in streaming]
            streaming[0].close()
            wait_until(
                lambda: any(tab.locator(".live").text_content() == "live" for tab in waiting)
            )


def lose_answer(route: Route) -> None:
    """The view has done it, and nobody hears of that."""
    route.fetch()
    route.abort()


def test_v5_what_is_sent_again_after_a_lost_answer_counts_once_and_what_was_changed_is_sent() -> (
    None
):
    with made_scene() as scene:
        scene.start("amy")
        client = scene.pen.client()
        with made_view(scene) as view, view.page(errors=("ERR_",)) as page:
            page.goto("/agents/amy/messages")
            text, send = page.get_by_label("Write to amy"), page.get_by_role("button", name="Send")
            for words, tries in (("one", 2), ("two", 1), ("three", 1)):
                text.fill(words)
                for _ in range(tries):
                    page.route("**/messages", lose_answer, times=1)
                    send.click()
                    expect(page.locator(".problem")).to_contain_text("does not answer")
            send.click()
            expect(text).to_have_value("")
            listed = client.get("agents", "amy", "messages")["messages"]
            assert [one["text"] for one in listed] == ["one", "two", "three"]


@pytest.mark.storm
def test_v6_the_history_of_an_agent_begins_with_the_newest_however_much_was_missed() -> None:
    with made_scene() as scene:
        standing(scene)
        with made_view(scene) as view, view.page(errors=("ERR_",)) as page:
            page.goto("/agents/amy/history")
            newest = page.locator(".content .news li").first
            expect(newest).to_contain_text("idle")
            page.context.set_offline(True)
            expect_behind(page, "this device is offline")
            for _ in range(101):  # more than one page of events
                scene.works("amy", "Bash")
                scene.hook("amy", "Stop")
            scene.works("amy", "Grep")
            page.context.set_offline(False)
            expect(newest).to_contain_text("working (Grep)")
