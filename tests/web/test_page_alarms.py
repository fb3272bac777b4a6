"""The page in a real browser when something ends or waits: a log-in, the hub, a person's answer
(V2, V4, V8, V11)."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from bullpen.web.token import VARIABLE
from tests.engines.cli import Claude
from tests.engines.fake_anthropic import FakeAnthropic
from tests.engines.programs import bare_claude, install
from tests.waiting import wait_until
from tests.web.page import SECONDS, View, made_view, violations
from tests.web.scene import Scene, made_scene

pytestmark = pytest.mark.storm

LOGGED_OUT = "You are logged out."


def standing(scene: Scene) -> None:
    """One that is idle, one that waits for an answer."""
    for name in ("amy", "bob"):
        scene.start(name)
    scene.idle("amy")
    scene.works("bob")
    scene.ask("bob", "Bash", command="make all")


def expect_nothing_of_now(page: Page) -> None:
    """It says that nobody is logged in, and shows no state as that of now."""
    expect(page.get_by_role("alert").filter(has_text=LOGGED_OUT)).to_be_visible()
    expect(page.locator("[data-item='agent:amy']")).to_contain_text("was idle")
    expect(page).to_have_title("… Bullpen")
    expect(page.get_by_role("button", name="Allow")).to_be_disabled()


def test_v2_v4_a_page_whose_token_was_revoked_says_so_and_asks_to_log_in() -> None:
    with made_scene() as scene:
        standing(scene)
        with made_view(scene) as view, view.page(errors=("401",)) as page:
            page.goto("/agents/bob/messages?by=pod")
            expect(page.locator("[data-item='agent:amy']")).to_contain_text("idle")
            expect(page.get_by_role("button", name="Allow")).to_be_enabled()
            (scene.pen.root / ".env").write_text(f"{VARIABLE}=another-token-of-24-chars\n")
            expect_nothing_of_now(page)
            page.get_by_role("link", name="Log in").click()
            expect(page).to_have_url(f"{view.address}/agents/bob/messages?by=pod")
            page.get_by_label("Token").fill("another-token-of-24-chars")
            page.get_by_label("Your name").fill("Ann")
            page.get_by_role("button", name="Log in").click()
            expect(page.get_by_role("button", name="Allow")).to_be_enabled()


def test_v2_logging_out_in_the_page_ends_a_copy_of_the_cookie_too() -> None:
    with made_scene() as scene:
        standing(scene)
        with (
            made_view(scene) as view,
            view.page(errors=("401",)) as page,
            view.page(errors=("401",)) as copy,
            view.page() as other,
        ):
            copy.context.clear_cookies()
            copy.context.add_cookies(page.context.cookies())
            copy.reload()
            expect(copy.get_by_role("button", name="Allow")).to_be_enabled()
            page.get_by_role("button", name="You: Tess").click()
            page.get_by_role("button", name="Log out").click()
            expect(page.get_by_label("Token")).to_be_visible()
            expect_nothing_of_now(copy)
            other.reload()
            expect(other.get_by_role("button", name="Allow")).to_be_enabled()


def test_v9_a_dialog_waits_for_the_hub_to_come_back_and_does_it_then() -> None:
    with made_scene() as scene:
        scene.start("amy")
        scene.idle("amy")
        with made_view(scene) as view, view.page(errors=("503", "ERR_")) as page:
            page.goto("/agents/amy")
            page.get_by_role("button", name="Stop…").click()
            dialog = page.get_by_role("dialog", name="Stop amy?")
            stop = dialog.get_by_role("button", name="Stop", exact=True)
            expect(stop).to_be_enabled()
            scene.pen.kill_hub()
            expect(dialog.get_by_text("The hub is away")).to_be_visible()
            expect(stop).to_be_disabled()
            scene.pen.start()
            expect(stop).to_be_enabled()
            expect(dialog.get_by_text("The hub is away")).to_have_count(0)
            stop.click()
            expect(dialog).to_have_count(0)
            expect(page.get_by_role("button", name="Start again")).to_be_enabled()


def test_v8_a_card_that_slips_under_a_finger_is_not_answered_by_it() -> None:
    with made_scene() as scene:
        for name in ("amy", "bob"):
            scene.start(name)
            scene.works(name)
            scene.ask(name, "Bash", command=f"make {name}")
        with made_view(scene) as view, view.page(360, 760) as page:
            first, second = page.locator(".inbox .ask").all()
            allow = first.get_by_role("button", name="Allow")
            expect(allow).to_be_enabled()
            expect(second.get_by_role("button", name="Allow")).to_be_enabled()
            box = allow.bounding_box()
            finger = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
            # Somebody else was quicker: when the finger arrives, the next card stands there.
            slips = """async at => {
              while (!document.querySelector('.ask[aria-label="permission of bob"]:only-child'))
                await new Promise(requestAnimationFrame)
              await new Promise(done => setTimeout(done, 100))
              document.elementFromPoint(...at).click()
            }"""
            scene.pen.client().post("approvals", "1", body={"decision": "deny"})
            page.evaluate(slips, finger)
            card = page.get_by_role("article", name="permission of bob")
            expect(card.get_by_role("button", name="Allow")).to_be_enabled()
            assert [one["agent"] for one in scene.decided] == ["amy"]
            page.touchscreen.tap(*finger)
            wait_until(lambda: len(scene.decided) == 2)


def test_v8_a_rule_for_always_is_read_and_allowed_by_keys() -> None:
    with made_scene() as scene:
        standing(scene)
        with made_view(scene) as view, view.page() as page:
            card = page.get_by_role("article", name="permission of bob")
            expect(card.get_by_role("button", name="Always…")).to_be_enabled()
            page.keyboard.press("j")
            expect(card).to_have_class("ask chosen")
            page.wait_for_timeout(700)  # what was chosen just now is not answered yet
            page.keyboard.press("A")
            expect(card.locator(".cmd").last).to_have_text("Bash(make all)")
            expect(card.get_by_role("button", name="For bob")).to_be_focused()
            page.keyboard.press("Enter")
            wait_until(lambda: bool(scene.decided))
            (answered,) = scene.decided
            assert answered["state"]["decision"] == "allow"
            assert answered["state"]["always"] == "Bash(make all)"


# ── notifications ──

# The browser's own, and what they were made of.
NOTED = """() => {
    window.noted = []
    const Own = window.Notification
    window.Notification = class extends Own {
        constructor(title, more) { super(title, more); window.noted.push([title, more.body]) }
    }
}"""
ICON = "() => document.querySelector('#favicon').href"


def hide(page: Page) -> None:
    """As when its window is behind others: a headless browser has none that could be."""
    page.evaluate("() => Object.defineProperty(document, 'visibilityState', {value: 'hidden'})")


def test_v8_title_icon_and_a_notification_say_that_somebody_waits() -> None:
    with made_scene() as scene:
        for name in ("amy", "bob"):
            scene.start(name)
            scene.works(name)
        with made_view(scene, is_whole=True) as view, view.page() as page:
            page.context.grant_permissions(["notifications"])
            page.add_init_script(f"({NOTED})()")
            page.reload()
            expect(page).to_have_title("Bullpen")
            plain = page.evaluate(ICON)
            # To who looks at the page the page itself says it.
            scene.ask("amy", "Bash", command="make all")
            expect(page).to_have_title("(1) Bullpen")
            expect(page.get_by_role("article", name="permission of amy")).to_be_visible()
            assert page.evaluate("() => window.noted") == []
            badge = page.evaluate(ICON)
            assert badge.startswith("data:image/png")
            assert badge != plain
            hide(page)
            scene.ask("bob", "Bash", command="rm -rf \u202ebuild")
            expect(page).to_have_title("(2) Bullpen")
            page.wait_for_function("() => window.noted.length === 1")
            assert page.evaluate("() => window.noted") == [
                ["bob wants Bash", "rm -rf ⟨U+202E⟩build"]
            ]
            assert page.evaluate(ICON) != badge
            scene.start("cleo")
            scene.hook("cleo", "PermissionRequest", tool_name="Bash")
            expect(page).to_have_title("(3) Bullpen")
            page.wait_for_function("() => window.noted.length === 2")
            assert page.evaluate("() => window.noted[1][0]") == "cleo asks in its terminal"


def test_v8_without_consent_nobody_is_notified_and_the_bell_asks() -> None:
    with made_scene() as scene:
        scene.start("amy")
        scene.works("amy")
        with made_view(scene, is_whole=True) as view, view.page() as page:
            page.add_init_script(f"({NOTED})()")
            page.reload()
            expect(
                page.get_by_role("button", name="Tell me when an agent needs me")
            ).to_be_visible()
            hide(page)
            scene.ask("amy", "Bash", command="make all")
            expect(page).to_have_title("(1) Bullpen")
            assert page.evaluate("() => window.noted") == []


# ── the form for log-in ──


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_v11_the_form_for_log_in_has_no_accessibility_violation(dark: bool) -> None:
    with made_scene() as scene, made_view(scene) as view:
        for width in (1400, 360):
            page = _stranger(view, width, dark)
            assert violations(page) == []
            page.get_by_label("Token").fill("wrong-wrong-wrong-wrong")
            page.get_by_role("button", name="Log in").click()
            expect(page.get_by_role("alert")).to_be_visible()
            assert violations(page) == []
            assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
            page.context.close()


def _stranger(view: View, width: int, dark: bool) -> Any:
    context = view.browser.new_context(
        viewport={"width": width, "height": 740},
        color_scheme="dark" if dark else "light",
        ignore_https_errors=True,
    )
    context.set_default_timeout(SECONDS * 1000)
    page = context.new_page()
    page.goto(f"{view.address}/approvals")
    return page


# ── with the real program ──


def test_v8_what_is_allowed_in_the_page_reaches_the_model_of_the_real_claude_code(
    tmp_path: Path,
) -> None:
    prompt = '[[tool Bash {"command":"touch made"} ; say it is made]]'
    with FakeAnthropic() as model, made_scene() as scene:
        install(scene.pen, "claude", bare_claude(Claude(tmp_path, model)))
        work = scene.start("nina", role="thinker", prompt=prompt)
        with made_view(scene) as view, view.page() as page:
            card = page.get_by_role("article", name="permission of nina")
            expect(card.locator(".cmd")).to_have_text("touch made")
            assert not (work / "made").exists()
            card.get_by_role("button", name="Allow").click()
            page.goto("/agents/nina/conversation")
            expect(page.get_by_text("it is made", exact=True)).to_be_visible()
            assert (work / "made").exists()
            results = [
                part
                for message in model.turns[-1].body["messages"]
                if isinstance(message["content"], list)
                for part in message["content"]
                if part["type"] == "tool_result"
            ]
            assert len(results) == 1, json.dumps(results)
            assert not results[0].get("is_error")
