"""Every page in both themes and at 360 px: nothing for axe to say, nothing that does not fit, and
texts of others shown as texts wherever they appear (V2, V8, V11)."""

import contextlib
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.waiting import wait_until
from tests.web.director import director_that_says, said_of_itself
from tests.web.page import View, made_view, violations
from tests.web.scene import Scene, made_scene

pytestmark = pytest.mark.storm

EVIL = "<img src=x onerror=document.title='owned'>"
HOSTILE = f"{EVIL}'\"><script>document.title='owned'</script>\u202egnp.exe\x1b]0;owned\x07 ${{7*7}}"
# Each page, and what is there when it is complete.
PLACES = {
    "/": ".ask tr.add",
    "/approvals": ".ask tr.add",
    "/agents/amy/terminal": ".xterm-rows",
    "/agents/amy/changes": ".content tr.add",
    "/agents/amy/messages": ".message",
    "/agents/amy/history": ".news li",
    "/agents/amy/explain": "table.plain tbody tr",
    "/agents/nina/conversation": ".said.prompt",
    "/agents/nobody": ".empty",
    "/tasks": ".past",
    "/changes/amy": ".content tr.add",
    "/directors/evil": "[aria-label='Journal'] li",
    "/usage": ".columns rect",
    "/terminals?agents=amy": ".xterm-rows",
    "/nowhere": ".empty",
}


def show(page: Page, place: str) -> None:
    page.goto(place)
    page.locator(f"main {PLACES[place]}").first.wait_for()


@contextlib.contextmanager
def hostile_view() -> Iterator[View]:
    """Agents whose every text is hostile: prompts, tool inputs, commits, files, messages."""
    with made_scene() as scene:
        work = scene.start("amy")
        scene.start("nina", role="thinker", prompt=f"Say it {HOSTILE} [[say {EVIL} done]]")
        scene.taker("tom")
        scene.write(work, {"a.html": f"{HOSTILE}\n", "<b>bold<b>.txt": "x\n"})
        scene.commit(work, f"Add {EVIL}")
        scene.write(work, {"a.html": "changed\n"})
        scene.works("amy")
        _fill(scene)
        said = said_of_itself(HOSTILE)
        with (
            director_that_says(scene.pen, "evil", said, problem=EVIL),
            made_view(scene) as view,
        ):
            yield view


def _fill(scene: Scene) -> None:
    client = scene.pen.client()
    client.post("agents", "amy", "messages", body={"text": HOSTILE.replace("\x00", "")})
    client.post("agents", "amy", "input", body={"text": f"# {EVIL}\r"})
    client.post("agents", "tom", "task", body={"prompt": f"{HOSTILE} [[say {EVIL}]]"})
    scene.uses("amy", 1000, 0.5)
    scene.ask("amy", "Bash", command=HOSTILE, description=EVIL)
    scene.ask("amy", "Edit", file_path=f"/{EVIL}", old_string=HOSTILE, new_string=f"{EVIL}\nb")
    option = {"label": EVIL, "description": HOSTILE}
    scene.ask("amy", "AskUserQuestion", questions=[{"question": HOSTILE, "options": [option]}])
    scene.ask("amy", EVIL, anything=[HOSTILE])
    wait_until(lambda: len(client.get("approvals")["approvals"]) == 4)
    wait_until(lambda: [e["state"] for e in client.get("history")["items"]] == ["completed"])


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_v11_no_page_has_an_accessibility_violation_or_runs_what_others_wrote(dark: bool) -> None:
    with hostile_view() as view, view.page(dark=dark, errors=("404",)) as page:
        found = {}
        for place in PLACES:
            show(page, place)
            assert "owned" not in page.title(), place
            assert page.locator("main img, main script, main b > b").count() == 0, place
            if bad := violations(page):
                found[place] = bad
        show(page, "/")
        for key in ("?", "Escape", "Control+k"):
            page.keyboard.press(key)
            if bad := violations(page):
                found[key] = bad
        assert not found


def test_v11_every_page_fits_into_360_pixels() -> None:
    with hostile_view() as view, view.page(360, 740, errors=("404",)) as page:
        for place in PLACES:
            show(page, place)
            wide = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, (place, wide)


def test_v8_what_is_invisible_in_a_command_is_seen() -> None:
    with hostile_view() as view, view.page() as page:
        command = page.locator(".cmd").first
        expect(command).to_contain_text("⟨U+202E⟩")
        expect(command).to_contain_text("⟨U+001B⟩")
        expect(page.locator(".ask tr.del .hidden-char").first).to_have_text("⟨U+202E⟩")
