"""Tasks in a real browser: where they work, what becomes of them, what a person does, all that were
(V5, V6)."""

import pytest
from playwright.sync_api import Page, expect

from tests.web.page import made_view
from tests.web.scene import made_scene

pytestmark = pytest.mark.slow


def give(page: Page, prompt: str) -> None:
    page.get_by_role("textbox", name="Prompt").fill(prompt)
    page.get_by_role("button", name="Give the task").click()


@pytest.mark.storm
def test_v5_a_task_works_in_a_branch_of_a_repository_and_refusals_are_shown_as_they_are() -> None:
    with made_scene() as scene:
        scene.taker("tom")
        client = scene.pen.client()
        with made_view(scene) as view, view.page(errors=("400", "404", "422")) as page:
            page.goto("/tasks")
            page.get_by_role("button", name="More").click()
            problem = page.get_by_role("alert")
            for repository, branch in (("/nowhere", "fix"), (str(scene.repository), "")):
                page.get_by_label("Repository").fill(repository)
                page.get_by_label("Branch of its worktree").fill(branch)
                give(page, "Look around")
                words = {"worktree": branch} if branch else {}
                body = {"prompt": "Look around", "repo": repository, **words}
                status, answer = scene.pen.ask("POST", "/tasks", body)
                assert status >= 400
                expect(problem).to_contain_text(answer["message"])
            page.get_by_label("Branch of its worktree").fill("fix")
            give(page, "Look around [[say It is a shop.]]")
            expect(page.get_by_role("log", name="progress")).to_contain_text("It is a shop.")
            expect(page.locator("section[aria-label^='task t-'] .state")).to_contain_text(
                "completed"
            )
            (task,) = client.get("history")["items"]
            whole = client.get("task", task["task_id"])
            assert whole["directory"] == str(scene.pen.home.root / "worktrees" / "fix")
            assert scene.git("branch", "--list", "fix").strip()


@pytest.mark.storm
def test_v5_a_person_goes_on_with_a_task_ends_it_and_cancels_another() -> None:
    with made_scene() as scene:
        scene.taker("tom")
        client = scene.pen.client()
        with made_view(scene) as view, view.page() as page:
            page.goto("/tasks")
            page.get_by_role("button", name="More").click()
            page.get_by_label("keep it open").check()
            give(page, "Count [[say One.]]")
            card, state = page.locator("section[aria-label^='task t-']"), ".state"
            progress = page.get_by_role("log", name="progress")
            expect(progress).to_contain_text("One.")
            expect(card.locator(state).first).to_contain_text("waits for you")
            listed = page.get_by_role("region", name="Open tasks")
            expect(listed).to_be_visible()
            page.get_by_label("Go on with", exact=True).fill("And then? [[say Two.]]")
            page.get_by_role("button", name="Go on").click()
            expect(progress).to_contain_text("Two.")
            # What was said before stays, and nothing is there twice.
            expect(progress.get_by_text("One.")).to_have_count(1)
            expect(progress.get_by_text("Two.")).to_have_count(1)
            page.get_by_role("button", name="End it").click()
            expect(card.locator(state).first).to_contain_text("completed")
            expect(listed).to_have_count(0)
            expect(page.get_by_label("Go on with", exact=True)).to_have_count(0)
            first = page.url.rpartition("/")[2]

            page.get_by_label("keep it open").uncheck()
            give(page, "Wait [[hold for ever]]")
            page.get_by_role("button", name="Cancel").click()
            # Before that it "is being cancelled".
            expect(card.locator(state).first).to_have_text("cancelled")
            assert not page.url.endswith(first)
            ends = {one["task_id"]: one["state"] for one in client.get("history")["items"]}
            assert ends == {first: "completed", page.url.rpartition("/")[2]: "cancelled"}


def test_v6_history_is_read_in_pages_and_searched_and_logs_come_when_somebody_asks() -> None:
    with made_scene() as scene:
        client = scene.pen.client()
        for number in range(22):
            body = {"prompt": f"number-{number:02}", "role": "nobody"}
            client.post("task", client.post("tasks", body=body)["task_id"], "cancel")
        with made_view(scene) as view, view.page() as page:
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url.partition("/api")[2]))
            page.goto("/tasks")
            past = page.get_by_role("region", name="History")
            rows = past.locator(".past")
            expect(rows).to_have_count(20)
            expect(rows.first).to_contain_text("number-21")
            past.get_by_role("button", name="Older").click()
            expect(rows).to_have_count(2)
            expect(past).to_contain_text("page 2 of 2")
            expect(rows.last).to_contain_text("number-00")
            expect(past.get_by_role("button", name="Older")).to_be_disabled()
            past.get_by_role("searchbox").fill("number-07")
            expect(rows).to_have_count(1)
            expect(rows).to_contain_text("cancelled · number-07")
            assert not [each for each in asked if each.startswith("/history/")]
            with page.expect_request("**/api/history/t-*"):
                rows.get_by_role("button", name="Logs of").click()
            expect(past.locator(".past > .pad")).to_be_visible()
            assert len([each for each in asked if each.startswith("/history/")]) == 1
