"""The page behind a proxy that holds streams of events back: it asks again and again (V4, V5)."""

import json
import os
import signal

import pytest
from playwright.sync_api import Page, expect

from tests.web.page import made_view
from tests.web.scene import Scene, made_scene

pytestmark = pytest.mark.slow

STREAM = "**/api/events/stream"
TASK_STREAM = "**/api/task/*/events"  # without a query: what is asked again and again has one
# What lies between lets the beginning of a stream through, and keeps what follows.
KEPT = """() => {
    const plain = window.fetch
    window.fetch = async (address, request) => {
        const answer = await plain(address, request)
        if (address !== '/api/events/stream' || window.isOpen) return answer
        window.streams = (window.streams ?? 0) + 1
        const reader = answer.body.getReader()
        let isFirst = true
        return new Response(new ReadableStream({
            async pull(sink) {
                const { value, done } = await reader.read()
                if (done) return sink.close()
                if (isFirst) sink.enqueue(value)
                else await new Promise((_, fail) =>
                    request.signal.addEventListener('abort', () => fail(request.signal.reason)))
                isFirst = false
            },
        }))
    }
}"""


def agents(page: Page) -> list[str]:
    rows = page.locator("[data-item^='agent:']")
    return [one.get_attribute("data-item") or "" for one in rows.all()]


def standing(scene: Scene) -> None:
    for name in ("amy", "bob"):
        scene.start(name)
    scene.idle("amy", "bob")


def few_requests(page: Page, polls: int) -> int:
    """How many the hub answers besides, while so many polls find nothing new."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.partition("/api/")[2]))
    while sum(each.startswith("events?") for each in asked) < polls:
        page.wait_for_event("requestfinished")
    assert not [each for each in asked if each.startswith("start")]
    parts = ("agents", "approvals", "landings", "tasks", "usage")
    return sum(each.startswith(parts) for each in asked)


def test_v4_where_no_stream_gets_through_the_page_polls_until_one_does() -> None:
    with made_scene() as scene:
        standing(scene)
        with made_view(scene) as view, view.page(errors=("503", "ERR_")) as page:
            page.route(STREAM, lambda route: None)  # neither answered nor refused
            page.reload()
            live, row = page.locator(".live"), page.locator("[data-item='agent:amy']")
            expect(live).to_have_text("live, polled")
            scene.works("amy", "Bash")
            expect(row).to_contain_text("working · Bash")
            assert few_requests(page, polls=4) <= 3
            scene.pen.run(name="cleo")
            expect(page.locator("[data-item='agent:cleo']")).to_be_visible()
            expect(page.locator(".news")).to_contain_text("cleo")
            scene.ask("bob", "Bash", command="make")
            expect(page.get_by_role("article", name="permission of bob")).to_be_visible()
            expect(page.get_by_role("alert")).to_have_count(0)
            # What is not known to be so now is not shown as if it were.
            scene.pen.kill_hub()
            expect(page.get_by_role("alert")).to_contain_text("Behind by")
            expect(row).to_contain_text("was working")
            scene.pen.start()
            expect(live).to_have_text("live, polled")
            expect(page.get_by_role("alert")).to_have_count(0)
            # Another network: streams get through again.
            page.unroute(STREAM)
            page.evaluate("() => dispatchEvent(new Event('online'))")
            expect(live).to_have_text("live")
            scene.hook("amy", "Stop")
            expect(row).to_contain_text("idle")
            ids = page.locator("[data-news]").evaluate_all("all => all.map(e => e.dataset.news)")
            assert len(set(ids)) == len(ids)
            assert len(agents(page)) == 3


@pytest.mark.storm
def test_v5_where_no_stream_gets_through_a_task_tells_what_it_does_each_thing_once() -> None:
    with made_scene() as scene:
        scene.taker("tom")
        prompt = "[[say One. ; hold one ; say Two. ; hold two ; say Three.]]"
        body = {"prompt": prompt.replace(" ; hold", ' ; tool Bash {"command": "true"} ; hold')}
        with made_view(scene) as view, view.page() as page:
            for address in (STREAM, TASK_STREAM):
                page.route(address, lambda route: None)  # neither answered nor refused
            page.reload()
            id = scene.pen.client().post("agents", "tom", "task", body=body)["task_id"]
            scene.claude.wait_held("one")
            page.goto(f"/tasks/{id}")
            progress = page.get_by_role("log", name="progress")
            expect(progress).to_contain_text("One.")
            scene.claude.release("one")
            expect(progress).to_contain_text("Two.")
            # Streams get through again while it works: it goes on where it was.
            for address in (STREAM, TASK_STREAM):
                page.unroute(address)
            scene.claude.wait_held("two")
            scene.claude.release("two")
            expect(progress).to_contain_text("Three.")
            card = page.locator(f"section[aria-label='task {id}']")
            expect(card.locator("header .state")).to_contain_text("completed")
            for text in ("One.", "Two.", "Three."):
                expect(progress.get_by_text(text)).to_have_count(1)
            expect(progress.locator(".tool")).to_have_count(2)


@pytest.mark.storm
def test_v4_streams_that_fall_silent_and_fail_are_polled_too_and_a_silent_view_is_no_news() -> None:
    with made_scene() as scene:
        standing(scene)
        with made_view(scene) as view, view.page(errors=("502", "ERR_")) as page:
            page.add_init_script(f"({KEPT})()")
            page.reload()
            live, row = page.locator(".live"), page.locator("[data-item='agent:amy']")
            expect(live).to_have_text("live")
            scene.works("amy", "Bash")
            # The first silence may have been a laptop that slept; the second one is none.
            expect(live).to_have_text("live, polled")
            page.wait_for_function("() => window.streams === 2")
            expect(row).to_contain_text("working · Bash")
            page.evaluate("() => { window.isOpen = true }")
            page.evaluate("() => dispatchEvent(new Event('online'))")
            expect(live).to_have_text("live")
            page.route(STREAM, lambda route: route.fulfill(status=502, body="{}"))
            page.reload()
            expect(live).to_have_text("live, polled")
            status = scene.pen.cli("web", "status", "--json").out
            pid = int(json.loads(status)["pid"])
            os.kill(pid, signal.SIGSTOP)
            try:
                expect(row).to_contain_text("was working")
            finally:
                os.kill(pid, signal.SIGCONT)
            expect(live).to_have_text("live, polled")
