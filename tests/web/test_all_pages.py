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
    "/": "[aria-label='Conflicts'] .row",
    "/approvals": "[aria-label='Written to you'] .message",
    "/agents/amy/terminal": ".xterm-rows",
    "/agents/amy/changes": ".content tr.add",
    "/agents/amy/messages": ".message",
    "/agents/amy/history": ".news li",
    "/agents/amy/explain": "table.plain tbody tr",
    "/agents/nina/conversation": ".said.prompt",
    "/agents/nobody": ".empty",
    "/tasks": ".past",
    "/tasks/LAST": "[role=log] .said",
    "/changes/amy": ".content tr.add",
    "/changes": "[aria-label='output of the checks']",
    "/directors/evil": "[aria-label='Journal'] li",
    "/usage": ".columns rect",
    "/terminals?agents=amy": ".xterm-rows",
    "/nowhere": ".empty",
}


LAST = "async () => (await (await fetch('/api/history')).json()).items[0].task_id"


def show(page: Page, place: str) -> None:
    page.goto(place.replace("LAST", page.evaluate(LAST)))
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
        work = scene.start("bob")
        scene.write(work, {"<b>bold<b>.txt": "y\n"})
        scene.commit(work, "Conflicts")
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
    scene.writes_to_you("amy", HOSTILE)
    scene.ask("amy", "Bash", command="ls")
    denied = {"decision": "deny", "reason": HOSTILE, "name": EVIL[:40]}
    client.post("approvals", "1", body=denied)
    client.post("landings", body={"names": ["bob"], "verify": f'echo "{EVIL}"; false'})
    wait_until(lambda: client.get("landings")["landings"][0]["status"]["state"] == "came_back")
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


def test_v11_every_page_fits_into_360_pixels_and_can_be_read_there() -> None:
    with hostile_view() as view, view.page(360, 740, errors=("404",)) as page:
        for place in PLACES:
            show(page, place)
            wide = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, (place, wide)
            assert violations(page) == [], place


def test_v8_what_is_invisible_in_a_command_is_seen() -> None:
    with hostile_view() as view, view.page() as page:
        command = page.locator(".cmd").first
        expect(command).to_contain_text("⟨U+202E⟩")
        expect(command).to_contain_text("⟨U+001B⟩")
        expect(page.locator(".ask tr.del .hidden-char").first).to_have_text("⟨U+202E⟩")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 360])
def test_v8_v11_a_goal_a_report_and_what_holds_it_up_are_shown_as_texts(
    width: int, dark: bool
) -> None:
    said = said_of_itself(HOSTILE)
    said["/status"]["config"] = {"type": "claude"}
    said["/schedule"] = {"schedule": [], "problem": None}
    goal = {"id": "g-1", "state": EVIL, "goal": HOSTILE, "created_at": 1.0}
    (trouble,) = said["/tasks"]["problems"]
    said["/tasks"] = {"tasks": [goal], "problems": [trouble | {"about": "g-1"}]}
    over = {"id": "g-0", "state": "completed", "completed_at": 1.0, "goal": EVIL}
    said["/history"] = {
        "items": [over | {"report": HOSTILE, "reason": EVIL}],
        "page": 1,
        "limit": 10,
        "total": 1,
    }
    with (
        made_scene() as scene,
        director_that_says(scene.pen, "lead", said, problem=EVIL),
        made_view(scene) as view,
        view.page(width, dark=dark) as page,
    ):
        page.goto("/directors/lead")
        held = page.locator("[aria-label='Holds now'] .held")
        expect(held).to_contain_text(EVIL)
        page.get_by_text("Report", exact=True).click()
        expect(page.locator("[aria-label='Over'] .said")).to_contain_text("⟨U+202E⟩gnp.exe")
        assert violations(page) == []
        assert "owned" not in page.title()
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
