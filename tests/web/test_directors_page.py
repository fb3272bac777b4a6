"""Directors in the view: how each stands, what it holds, and what it says of a crash (V3, V4)."""

import json
import re
from typing import Any

import pytest
from playwright.sync_api import expect

from bullpen.cli.directors import find_running
from bullpen.home.paths import HUB
from bullpen.hub.agents.tokens import hash_of, new_token
from tests.directors.running import made_manager, made_scheduler
from tests.hub.http.http import ask
from tests.hub.pen import Pen
from tests.processes import kill
from tests.waiting import wait_until
from tests.web.director import director_that_says, said_of_itself
from tests.web.page import made_view
from tests.web.running import RunningView
from tests.web.scene import made_scene


@pytest.mark.slow
def test_v3_directors_are_shown_with_their_own_words_and_one_that_is_silent_without(
    served: RunningView,
) -> None:
    (served.pen.home.directors / "resting.yaml").write_text("type: scheduler\n")
    with director_that_says(served.pen, "loud", said_of_itself("hello"), problem="no token"):
        loud, resting = served.ask("GET", "/api/directors").json
        assert (loud["name"], loud["state"], loud["problem"]) == ("loud", "idle", "no token")
        assert (loud["says"]["type"], loud["says"]["last_poll"]) == ("hello", 1.0)
        assert [task["title"] for task in loud["says"]["tasks"]] == ["hello"]
        assert loud["says"]["next_runs"] == [{"at": 4e9, "name": "hello"}]
        (entry,) = loud["says"]["schedule"]
        assert (entry["name"], entry["last"]["state"], entry["running"]) == ("hello", "hello", None)
        assert (resting["name"], resting["state"], resting["says"]) == ("resting", "stopped", None)
    with director_that_says(served.pen, "quiet", {}):
        quiet, _ = served.ask("GET", "/api/directors").json
        assert (quiet["name"], quiet["state"], quiet["says"]) == ("quiet", "idle", None)
    (served.pen.home.directors / "resting.yaml").unlink()


@pytest.mark.slow
def test_v3_an_entry_of_a_schedule_is_run_now_and_its_result_is_shown(served: RunningView) -> None:
    entry = {"name": "tidy", "cron": "@daily", "prompt": "x", "role": "nobody"}
    with made_scheduler(served.pen, entry) as director:

        def run(name: str, entry: str) -> tuple[int, dict[str, Any]]:
            answer = served.ask("POST", f"/api/directors/{name}/schedule/{entry}/run")
            return answer.status, answer.json

        wait_until(lambda: served.ask("GET", "/api/directors").json[0]["says"] is not None)
        status, answer = run("nightly", "tidy")
        assert status == 202
        assert [one["id"] for one in director.ask("GET", "/tasks")["tasks"]] == [answer["id"]]
        assert run("nobody", "tidy")[0] == 404
        for wrong in (
            "tidier",
            "..",
            "tidy%3F",
            "..%2F..%2Fshutdown%3F",
        ):  # no other path is reached
            assert run("nightly", wrong)[0] in (404, 405), wrong
        kill(director.pid)
        assert run("nightly", "tidy")[0] == 503
        wait_until(lambda: find_running(served.pen.home, "nightly") is not None)
    (served.pen.home.directors / "nightly.yaml").unlink()


def problems(pen: Pen) -> list[dict[str, Any]]:
    """What holds up the one director, as `bullpen director list` has it."""
    (row,) = json.loads(pen.cli("director", "list", "--json").out)["directors"]
    found: list[dict[str, Any]] = row["problems"]
    return found


@pytest.mark.storm
def test_v4_a_schedule_is_run_by_its_button() -> None:
    entry = {"name": "tidy", "cron": "@daily", "prompt": "x", "role": "nobody", "timeout": "1s"}
    with (
        made_scene() as scene,
        made_view(scene) as view,
        made_scheduler(scene.pen, entry),
        view.page() as page,
    ):
        page.goto("/directors/nightly")
        row = page.locator("[aria-label='Schedule'] .row")
        expect(row).to_contain_text("has not run yet")
        row.get_by_role("button", name="Run now: tidy").click()
        expect(page.locator(".toast")).to_contain_text("tidy runs")
        expect(row).to_contain_text("no agent was free")


@pytest.mark.slow
def test_d5_v3_a_goal_is_given_listed_and_ended_in_the_page_and_its_report_is_read() -> None:
    with (
        made_scene() as scene,
        made_view(scene) as view,
        made_manager(scene.pen) as director,
        view.page() as page,
    ):
        made = scene.pen.cli("worktree", "create", "lead-g-done", cwd=scene.repository)
        assert made.code == 0, made
        where = scene.pen.root / "worktrees" / "lead-g-done"
        scene.write(where, {"greeting.txt": "hello\n"})
        scene.commit(where, "Greet")
        page.goto("/directors/lead")
        wait_until(lambda: problems(scene.pen))
        (problem,) = problems(scene.pen)
        waiting = page.locator("[aria-label='Holds now'] .row").filter(has_text="Wait for me")
        for words in (problem["reason"], problem["hint"]):
            assert words
            expect(waiting).to_contain_text(words)
        expect(page.get_by_role("region", name="Held up")).to_have_count(0)
        page.get_by_label("What is to be reached").fill("Ship <b>it</b>")
        page.get_by_role("button", name="Give the goal").click()
        expect(page.locator(".toast")).to_contain_text("lead leads others")
        held = page.locator("[aria-label='Holds now'] .row")
        expect(held).to_have_count(2)
        expect(held.nth(1)).to_contain_text("Ship <b>it</b> queued")
        (goal,) = [one for one in director.ask("GET", "/tasks")["tasks"] if "Ship" in one["goal"]]
        page.get_by_role("button", name="End: Ship").click()
        wait_until(lambda: director.ask("GET", f"/task/{goal['id']}")["state"] != "queued")
        expect(held.filter(has_text="Ship").get_by_role("button")).to_have_count(0)
        over = page.locator("[aria-label='Over'] .row")
        expect(over.filter(has_text="Fly")).to_contain_text("Fly failed: no wings")
        done = over.filter(has_text="Greet")
        done.get_by_text("Report").click()
        expect(done).to_contain_text("Hello\nthere")
        words = "2 commits on branch lead-g-done"
        expect(done).to_contain_text(f"{words} · to look at it: bullpen diff lead-g-done")
        land = page.get_by_role("button", name="Land… lead-g-done")
        land.click()
        page.get_by_role("dialog").get_by_role("button", name="Land", exact=True).click()
        expect(done).to_contain_text(f"{words} · landed as")
        expect(land).to_have_count(0)
        assert (scene.repository / "greeting.txt").read_text() == "hello\n"


@pytest.mark.slow
def test_v3_a_goal_goes_to_a_director_of_this_home_alone_and_only_once(served: RunningView) -> None:
    with made_manager(served.pen) as director:

        def give(name: str, **body: Any) -> tuple[int, dict[str, Any]]:
            answer = served.ask("POST", f"/api/directors/{name}/goals", body)
            return answer.status, answer.json

        wait_until(lambda: served.ask("GET", "/api/directors").json[0]["says"] is not None)
        key = "0" * 32
        (status, taken), again = (give("lead", prompt="x", request=key) for _ in range(2))
        assert (status, again) == (202, (202, taken))
        over = {row["id"] for row in served.ask("GET", "/api/directors").json[0]["says"]["over"]}
        assert over == {"g-failed", "g-done"}
        assert give("lead", prompt=1)[0] == give("lead", prompt=" ")[0] == 400
        assert give("nobody", prompt="x")[0] == 404
        assert give("..%2F..%2Fshutdown%3F", prompt="x")[0] in (404, 405)
        cancel = f"/api/directors/lead/goals/{taken['task_id']}/cancel"
        assert served.ask("POST", cancel).status == 202
        assert (
            served.ask("POST", "/api/directors/lead/goals/..%2F..%2Fshutdown/cancel").status >= 400
        )
        kill(director.pid)
        assert give("lead", prompt="x")[0] == 503
        wait_until(lambda: find_running(served.pen.home, "lead") is not None)
    (served.pen.home.directors / "lead.yaml").unlink()


@pytest.mark.storm
def test_v4_a_director_that_crashed_says_why_and_when_it_starts_again() -> None:
    entry = {"name": "tidy", "cron": "@daily", "prompt": "x", "role": "coder"}
    with (
        made_scene() as scene,
        made_view(scene) as view,
        made_scheduler(scene.pen, entry) as director,
        view.page() as page,
    ):
        page.locator("[aria-label='Directors'] .row").click()
        page.wait_for_url("**/directors/nightly")
        expect(page.locator("[aria-label='Next runs']")).to_contain_text("tidy")
        expect(page.locator("[aria-label='Holds now']")).to_contain_text("Nothing")
        director.file.write_text("type: scheduler\nport: nonsense\n")
        director.kill()
        one = page.locator("[aria-label='Director nightly']")
        expect(one).to_contain_text("starts again in")
        expect(one).to_contain_text("ended with code 2")
        expect(one).to_contain_text(re.compile("[0-9] restarts? since it was started"))
        page.goto("/")
        expect(page.locator("[aria-label='Directors'] .row")).to_contain_text("ended with code 2")
        page.keyboard.press("g")
        page.keyboard.press("d")
        page.wait_for_url("**/directors")
        page.locator("[data-item='director:nightly']").wait_for()
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/directors/nightly")


@pytest.mark.storm
def test_v8_what_a_director_leaves_to_a_person_is_tried_again_or_left() -> None:
    with made_scene() as scene, made_view(scene) as view, view.page() as page:
        hub, token = scene.pen.home.socket(HUB), new_token()
        admitted = {"token_hash": hash_of(token)}
        assert ask(hub, "PUT", "/directors/robo", body=admitted).status == 200
        for name, what, button, decision in (
            ("a" * 32, "The checks stay red", "Try again", "allow"),
            ("b" * 32, "It conflicts with main", "Leave it", "deny"),
        ):
            asked = {"what": what, "about": {"pull": "#7"}}
            opened = ask(hub, "PUT", f"/escalations/{name}", body=asked, token=token)
            assert opened.status == 200
            page.goto(f"/approvals/{opened.json['id']}")
            card = page.locator("article.ask", has_text=what)
            expect(card.locator("a[href='/directors/robo']")).to_be_visible()
            expect(card.get_by_role("button")).to_have_count(2)
            card.get_by_role("button", name=button).click()
            expect(page.locator("article.ask")).to_have_count(0)
            state = ask(hub, "GET", f"/escalations/{name}", token=token).json["state"]
            assert (state["status"], state["decision"]) == ("answered", decision)


@pytest.mark.storm
def test_v11_the_palette_is_opened_and_used_by_touch_at_360_pixels() -> None:
    with made_scene() as scene, made_view(scene) as view, view.page(360, 740) as page:
        page.get_by_label("Search and commands").tap()
        page.get_by_role("combobox").fill("usage")
        page.get_by_role("option").first.tap()
        page.wait_for_url("**/usage")
        expect(page.get_by_role("combobox")).to_have_count(0)
        wide = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0
