"""The page in a real browser, against a real hub with real agents (V4, V7, V8, V11)."""

from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.waiting import wait_until
from tests.web.page import made_view
from tests.web.scene import Scene, made_scene

pytestmark = pytest.mark.slow


def waiting(scene: Scene) -> list[dict[str, Any]]:
    return scene.pen.client().get("approvals")["approvals"]


def fits(page: Page) -> bool:
    return page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


# One key right after the other.
PRESS = """keys => {
    const press = key => new KeyboardEvent('keydown', { key, bubbles: true })
    for (const key of keys) document.body.dispatchEvent(press(key))
}"""


def test_v8_approval_by_keyboard_and_a_question_by_a_click() -> None:
    with made_scene() as scene:
        for name in ("amy", "bob"):
            scene.start(name)
            scene.works(name)
        with made_view(scene) as view, view.page() as page:
            expect(page.get_by_text("Nobody waits for you")).to_be_visible()
            scene.ask("amy", "Bash", command="rm -rf build && make all")
            card = page.get_by_role("article", name="permission of amy")
            expect(card.locator(".cmd")).to_have_text("rm -rf build && make all")
            expect(page).to_have_title("(1) Bullpen")
            expect(card.get_by_role("button", name="Allow")).to_be_enabled()
            # What was chosen just now is not answered yet: somebody has to have seen it.
            page.evaluate(PRESS, ["j", "a"])
            expect(card).to_have_class("ask chosen")
            page.wait_for_timeout(700)
            assert not scene.decided
            page.keyboard.press("a")
            expect(page.get_by_role("status").get_by_text("amy: allowed by you")).to_be_visible()
            wait_until(lambda: 1 in scene.answers)
            assert scene.decided[0]["state"]["decision"] == "allow"
            expect(card).to_have_count(0)
            question = {"question": "Which dialect?", "options": [{"label": "Excel"}]}
            scene.ask("bob", "AskUserQuestion", questions=[{"header": "", **question}])
            page.get_by_role("button", name="Excel").click()
            wait_until(lambda: not waiting(scene))
            expect(page).to_have_title("Bullpen")
            (answered,) = [one for one in scene.decided if one["agent"] == "bob"]
            assert answered["state"]["answers"] == [{"options": [1], "text": ""}]


def test_v8_v11_on_a_phone_an_edit_is_read_and_denied_with_a_reason() -> None:
    with made_scene() as scene:
        scene.start("amy")
        scene.works("amy")
        with made_view(scene) as view, view.page(360, 740, name="Ann") as page:
            scene.ask("amy", "Edit", file_path="/a/b.py", old_string="a\nb", new_string="a\nc")
            card = page.get_by_role("article", name="permission of amy")
            expect(card.locator("tr.del")).to_contain_text("b")
            expect(card.locator("tr.add")).to_contain_text("c")
            assert fits(page)
            for button in card.locator(".acts .btn").all():
                assert button.bounding_box()["height"] >= 44  # type: ignore[index]
            card.get_by_role("button", name="Deny…").tap()
            card.get_by_label("Why?").fill("not that file")
            card.get_by_role("button", name="Deny", exact=True).tap()
            wait_until(lambda: not waiting(scene))
            (first,) = scene.decided
            assert (first["state"]["decision"], first["state"]["reason"]) == (
                "deny",
                "not that file",
            )
            assert first["state"]["name"] == "Ann"


def test_v4_v11_a_row_says_role_model_branch_and_tokens_below_its_state_or_in_columns() -> None:
    with made_scene() as scene:
        for name in ("amy", "bob"):
            scene.start(name)
        scene.works("amy", "Bash")
        scene.uses("amy", 41_200, 0.38)
        with made_view(scene) as view, view.page() as page:
            for width, is_one_line in ((1400, False), (980, True), (360, False)):
                page.set_viewport_size({"width": width, "height": 900})
                row = page.locator("[data-item='agent:amy']")
                expect(row.locator(".who")).to_contain_text("working · Bash")
                for part, text in (
                    ("role", "coder"),
                    ("model", "command"),
                    ("on-branch", "branch amy"),
                    ("used", "41.2k tokens"),
                ):
                    expect(row.locator(f".{part}")).to_have_text(text)
                    expect(row.locator(f".{part}")).to_be_visible()
                    at, name = middle(page, f".{part}"), middle(page, ".who")
                    assert (abs(at - name) < 6) == is_one_line, (width, part)
                assert fits(page)
            page.goto("/agents/bob")
            page.set_viewport_size({"width": 1400, "height": 900})
            expect(page.locator("[data-item='agent:amy'] .who")).to_be_visible()
            expect(page.locator("[data-item='agent:amy'] .role")).not_to_be_visible()


@pytest.mark.storm
def test_v4_v11_filter_and_grouping_are_in_the_address_and_back_leads_to_the_ones_before() -> None:
    with made_scene() as scene:
        scene.start("amy", pod="shop")
        scene.start("bob")
        with made_view(scene) as view, view.page() as page:
            by_pod = page.get_by_role("button", name="pod", exact=True)
            by_pod.click()
            expect(page).to_have_url(f"{view.address}/?by=pod")
            page.keyboard.press("/")
            page.keyboard.type("am")
            expect(page).to_have_url(f"{view.address}/?filter=am&by=pod")
            rows = page.locator("[data-item^='agent:']")
            expect(rows).to_have_count(1)
            rows.click()
            expect(page).to_have_url(f"{view.address}/agents/amy?filter=am&by=pod")
            expect(rows).to_have_count(1)
            page.get_by_role("link", name="Explain").click()
            expect(page).to_have_url(f"{view.address}/agents/amy/explain?filter=am&by=pod")
            with view.page() as other:
                other.goto("/?filter=am&by=pod")
                expect(other.locator("[data-item^='agent:']")).to_have_count(1)
                expect(other.get_by_role("heading", name="shop")).to_be_visible()
                expect(other.get_by_label("Filter agents")).to_have_value("am")
            for _ in range(3):
                page.go_back()
            expect(page).to_have_url(f"{view.address}/?by=pod")
            expect(rows).to_have_count(2)
            expect(page.get_by_label("Filter agents")).to_have_value("")
            page.go_back()
            expect(page).to_have_url(f"{view.address}/")
            expect(by_pod).to_have_attribute("aria-pressed", "false")
            page.go_forward()
            expect(by_pod).to_have_attribute("aria-pressed", "true")
            # Who comes to the overview finds it as it was grouped last.
            page.keyboard.press("g")
            page.keyboard.press("t")
            page.get_by_role("link", name="Overview").click()
            expect(page).to_have_url(f"{view.address}/?by=pod")


def middle(page: Page, part: str) -> float:
    """At which height it stands in amy's row."""
    box = page.locator(f"[data-item='agent:amy'] {part}").bounding_box()
    assert box is not None
    return float(box["y"] + box["height"] / 2)


ANSWER = """async id => (await fetch(`/api/approvals/${id}`, {
    method: 'POST',
    body: '{"decision": "deny"}',
    headers: {'Content-Type': 'application/json'},
})).status"""


@pytest.mark.storm
def test_v8_who_comes_second_is_told_who_was_first() -> None:
    with made_scene() as scene:
        scene.start("amy")
        scene.works("amy")
        scene.ask("amy", "Bash", command="ls")
        with (
            made_view(scene) as view,
            view.page(name="Ann") as ann,
            view.page(name="Ben", errors=("409",)) as ben,
        ):
            allow = ben.get_by_role("button", name="Allow")
            expect(allow).to_be_enabled()
            number = waiting(scene)[0]["id"]

            def late(route: Route) -> None:
                # Ben's page has not heard of it yet when he presses the button.
                assert ann.evaluate(ANSWER, number) == 200
                route.continue_()

            ben.route(f"**/api/approvals/{number}", late)
            allow.click()
            expect(ben.get_by_text("amy: Ann was first: denied")).to_be_visible()


@pytest.mark.storm
def test_v4_v11_the_page_goes_on_after_the_hub_was_killed_without_a_gap() -> None:
    with made_scene() as scene:
        for name in ("amy", "bob"):
            scene.start(name)
        scene.idle("amy", "bob")
        with made_view(scene) as view, view.page(errors=("503", "ERR_")) as page:
            row = page.locator("[data-item='agent:amy']")
            expect(row).to_contain_text("idle")
            scene.pen.kill_hub()
            expect(page.get_by_role("alert")).to_contain_text("Behind by")
            expect(row).to_contain_text("was idle")
            scene.pen.start()
            scene.works("amy", "Bash")
            scene.hook("bob", "Stop")
            expect(row).to_contain_text("working · Bash")
            expect(page.get_by_role("alert")).to_have_count(0)
            scene.pen.run(name="cleo")
            expect(page.locator("[data-item='agent:cleo']")).to_be_visible()
            scene.pen.stop("bob")
            # Every line is an event of the log, and every event that has a line has one.
            logged = [
                one["id"]
                for one in scene.pen.client().get("events", limit=1000)["events"]
                if one["kind"] in ("agent.started", "agent.stopped", "hub.started")
            ]
            news = page.locator("[data-news]")
            expect(news.first).to_contain_text("bob ended")
            lines = news.evaluate_all("all => all.map(e => [e.dataset.news, e.textContent])")
            ids = [int(id) for id, _ in lines]
            assert ids == sorted(set(ids), reverse=True)
            assert set(ids) <= set(logged)
            # What happened to several at once is one line, with the last event of them.
            others = sum(text.count("and 1 other") for _, text in lines)
            assert len(ids) + others == len(logged), lines
            rows = page.locator("[data-item^='agent:']")
            names = rows.evaluate_all("all => all.map(each => each.dataset.item)")
            assert sorted(names) == ["agent:amy", "agent:bob", "agent:cleo"]


def test_v7_terminal_is_read_only_until_it_is_taken_over() -> None:
    with made_scene() as scene:
        scene.start("amy")
        with made_view(scene) as view, view.page() as page:
            page.goto("/agents/amy/terminal")
            box = page.locator("[data-terminal=amy]")
            text = "() => document.querySelector('[data-terminal=amy]')?.text?.() ?? ''"
            page.wait_for_function(f"() => ({text})().includes('$')")
            box.click()
            page.keyboard.type("echo un-seen\n")
            page.get_by_role("button", name="Take over").click()
            expect(page.get_by_text("You type here.")).to_be_visible()
            page.keyboard.type("echo se''en-$COLUMNS\n")
            page.wait_for_function(f"() => /seen-[0-9]+/.test(({text})())")
            assert "un-seen" not in page.evaluate(text)
            other = page.context.new_page()
            other.set_viewport_size({"width": 700, "height": 500})
            other.goto("/agents/amy/terminal")
            other.get_by_role("button", name="Take over").click()
            expect(page.get_by_text("Another window has set its size.")).to_be_visible()
            page.keyboard.type("x")
            expect(page.get_by_text("The terminal has the size of this window.")).to_be_visible()
            page.get_by_role("button", name="Give back").click()
            expect(page.get_by_text("You watch")).to_be_visible()


def test_v7_a_watched_terminal_is_drawn_whole_at_its_own_size_also_on_a_phone() -> None:
    draw = r"printf '%074d-right' 7; printf '\033[24;1Hlast'; exec cat"
    with made_scene() as scene:
        scene.pen.run("/bin/sh", "-c", draw, name="amy")
        with made_view(scene) as view, view.page(360, 760) as page:
            page.goto("/agents/amy/terminal")
            text = "document.querySelector('[data-terminal=amy]')?.text?.() ?? ''"
            page.wait_for_function(f"() => /^0+7-right$/m.test({text})")
            page.wait_for_function(f"() => ({text}).split('\\n').findIndex(l => l == 'last') == 23")
            page.wait_for_function(
                "() => { const box = document.querySelector('.screen')"
                "; const [outer, inner] = [box, box.querySelector('.xterm-screen')]"
                ".map(each => each.getBoundingClientRect())"
                "; return inner.width > 200 && inner.right <= outer.right"
                " && inner.bottom <= outer.bottom && inner.height > outer.height - 40 }"
            )
            page.get_by_role("button", name="Take over").click()
            expect(page.get_by_text("You type here.")).to_be_visible()
            expect(page.locator(".screen.watched")).to_have_count(0)


# As Chrome on Android: the word is there, and what it makes is refused.
NO_NOTIFICATIONS = """
window.Notification = class {
    static permission = new URL(location.href).hash ? 'granted' : 'default'
    static async requestPermission() { throw new Error('asked for nothing') }
    constructor() { throw new TypeError('Illegal constructor') }
}"""


@pytest.mark.storm
def test_v8_who_asks_in_its_terminal_is_counted_and_a_browser_without_notifications_says_so() -> (
    None
):
    with made_scene() as scene:
        for name in ("amy", "bob"):
            scene.start(name)
            scene.works(name)
        with made_view(scene) as view, view.page() as page:
            page.add_init_script(NO_NOTIFICATIONS)
            page.goto("/approvals")
            expect(page).to_have_title("Bullpen")
            page.get_by_role("button", name="Tell me when an agent needs me").click()
            without = page.get_by_role("button", name="This browser shows no notifications")
            expect(without).to_be_visible()
            page.goto("/approvals#granted")
            page.reload()
            expect(without).to_have_count(0)
            page.evaluate(
                "() => Object.defineProperty(document, 'visibilityState', {value: 'hidden'})"
            )
            scene.hook("amy", "PermissionRequest", tool_name="Bash")
            expect(page).to_have_title("(1) Bullpen")
            badge = page.locator("nav .badge:visible")
            expect(badge).to_have_text("1")
            scene.ask("bob", "Bash", command="make all")
            expect(page).to_have_title("(2) Bullpen")
            expect(badge).to_have_text("2")
            expect(page.get_by_role("article", name="permission of bob")).to_be_visible()
            expect(without).to_be_visible()


def test_v5_v6_task_from_the_form_to_its_result_and_logs() -> None:
    with made_scene() as scene:
        scene.taker("tom")
        with made_view(scene) as view, view.page() as page:
            page.goto("/tasks")
            choice = page.locator("form select").first
            choice.select_option("tom")
            page.get_by_role("textbox", name="Prompt").fill("Count [[say All 12 tests pass.]]")
            give = page.get_by_role("button", name="Give the task")
            # While the one that was chosen has another task, nobody else gets this one.
            body = {"prompt": "[[hold x ; say Done.]]"}
            task = scene.pen.client().post("agents", "tom", "task", body=body)["task_id"]
            scene.claude.wait_held("x")
            expect(choice.locator("option:checked")).to_have_text("tom · not free now")
            expect(give).to_be_disabled()
            scene.pen.client().post("task", task, "cancel")
            give.click()
            progress = page.get_by_role("log", name="progress")
            expect(progress).to_contain_text("All 12 tests pass.")
            expect(page.locator("section[aria-label^='task t-'] .state")).to_contain_text(
                "completed"
            )
            logs = page.get_by_role("button", name="Logs of")
            expect(logs).to_have_count(2)
            logs.first.click()
            expect(page.get_by_text("Run 1")).to_be_visible()


@pytest.mark.storm
def test_v7_terminals_stand_side_by_side_and_one_of_them_is_taken_over() -> None:
    with made_scene() as scene:
        for name in ("amy", "bob", "cleo"):
            scene.start(name)
        with made_view(scene) as view, view.page() as page:
            page.goto("/terminals?agents=amy,bob")
            text = "name => document.querySelector(`[data-terminal=${name}]`)?.text?.() ?? ''"
            for name in ("amy", "bob"):
                page.wait_for_function(f"name => ({text})(name).includes('$')", arg=name)
            assert page.locator("[data-terminal]").count() == 2
            one, other = (
                page.get_by_role("region", name=f"terminal of {name}") for name in ("amy", "bob")
            )
            assert one.bounding_box()["y"] == other.bounding_box()["y"]
            one.get_by_role("button", name="Take over").click()
            expect(one.get_by_text("You type here.")).to_be_visible()
            expect(other.get_by_text("You watch")).to_be_visible()
            page.keyboard.type("echo he''re\n")
            page.wait_for_function(f"() => ({text})('amy').includes('here')")
            assert "here" not in page.evaluate(text, "bob")
