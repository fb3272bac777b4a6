"""Work on branches in the page: diff, conflict, landing, what stands in the way (V9)."""

import pytest
from playwright.sync_api import expect

from tests.waiting import wait_until
from tests.web.page import made_view
from tests.web.scene import Scene, made_scene


def work(scene: Scene, name: str, text: str) -> None:
    where = scene.start(name)
    scene.write(where, {"cart.py": text})
    scene.commit(where, f"{name} prices")
    scene.idle(name)


@pytest.mark.storm
def test_v9_a_diff_a_conflict_and_a_landing_with_a_question_before_it() -> None:
    with made_scene() as scene:
        work(scene, "amy", "def price(item):\n    return item.net * 1.2\n")
        work(scene, "bob", "def price(item):\n    return round(item.net)\n")
        with made_view(scene) as view, view.page() as page:
            page.goto("/changes/amy")
            expect(page.locator(".content tr.add")).to_contain_text("return item.net * 1.2")
            conflicts = page.get_by_role("region", name="Conflicts")
            expect(conflicts).to_contain_text("cart.py")
            page.get_by_role("button", name="Land…").click()
            dialog = page.get_by_role("dialog", name="Land the work of amy?")
            page.keyboard.press("Escape")
            expect(dialog).to_have_count(0)
            page.get_by_role("button", name="Land…").click()
            dialog.get_by_role("button", name="Land", exact=True).click()
            queue = page.get_by_role("region", name="Landing queue")
            expect(queue).to_contain_text("landed as")
            wait_until(lambda: "amy prices" in scene.git("log", "--oneline", "main"))
            page.goto("/changes/bob")
            page.get_by_role("button", name="Land…").click()
            page.get_by_role("dialog").get_by_role("button", name="Land", exact=True).click()
            expect(queue).to_contain_text("conflicts in cart.py")


@pytest.mark.slow
def test_v4_v9_the_overview_says_who_conflicts_with_whom_in_which_files_and_no_longer() -> None:
    with made_scene() as scene:
        for name, text in (("amy", "return item.net * 1.2"), ("bob", "return round(item.net)")):
            work(scene, name, f"def price(item):\n    {text}\n")
        with made_view(scene) as view, view.page() as page:
            card = page.get_by_role("region", name="Conflicts")
            expect(card.locator(".row")).to_have_count(1)
            expect(card.locator(".row")).to_contain_text("amy and bob · cart.py")
            assert [each.get_attribute("href") for each in card.locator(".row a").all()] == [
                "/agents/amy/changes",
                "/agents/bob/changes",
            ]
            where = scene.pen.root / "worktrees" / "bob"
            scene.git("reset", "-q", "--hard", "main", where=where)
            scene.works("bob", "Bash")
            expect(card).to_have_count(0)
            page.goto("/changes")
            expect(page.locator("[data-item='branch:bob']")).to_contain_text("nothing changed")
            expect(page.get_by_text("No live branch conflicts with another.")).to_be_visible()


@pytest.mark.storm
def test_v9_what_is_not_committed_is_discarded_if_the_question_named_it() -> None:
    """And kept aside."""
    with made_scene() as scene:
        where = scene.start("amy")
        scene.write(where, {"cart.py": "x = 1\n"})
        scene.idle("amy")
        with made_view(scene) as view, view.page() as page:
            page.goto("/agents/amy/changes")
            expect(page.get_by_text("1 file not committed")).to_be_visible()
            page.get_by_role("button", name="Discard…").click()
            dialog = page.get_by_role("dialog")
            expect(dialog).to_contain_text("1 file that is not committed is dropped")
            dialog.get_by_role("button", name="Discard", exact=True).click()
            wait_until(lambda: not where.exists() and "amy" not in scene.pen.agents())
            assert scene.pen.cli("worktree", "restore", "amy", cwd=scene.repository).code == 0
            assert (where / "cart.py").read_text() == "x = 1\n"


@pytest.mark.slow
def test_v9_what_is_not_committed_and_was_not_named_is_not_discarded() -> None:
    with made_scene() as scene:
        where = scene.start("amy")
        scene.idle("amy")
        with made_view(scene) as view, view.page(errors=("409", "422")) as page:
            page.goto("/agents/amy/changes")
            page.get_by_role("button", name="Discard…").click()
            dialog = page.get_by_role("dialog")
            scene.write(where, {"cart.py": "x = 1\n"})
            dialog.get_by_role("button", name="Discard", exact=True).click()
            expect(dialog.get_by_role("alert")).to_contain_text("cart.py")
            assert (where / "cart.py").read_text() == "x = 1\n"


@pytest.mark.storm
def test_v9_the_output_of_a_check_is_read_while_it_runs() -> None:
    with made_scene() as scene:
        work(scene, "amy", "x = 1\n")
        with made_view(scene) as view, view.page() as page:
            verify = "echo '<b>checking</b>'; sleep 98765"
            scene.pen.client().post("landings", body={"names": ["amy"], "verify": verify})
            page.goto("/changes")
            queue = page.get_by_role("region", name="Landing queue")
            queue.get_by_text("as they run").click()
            expect(queue.get_by_label("output of the checks")).to_have_text("<b>checking</b>\n")
            scene.pen.client().delete("landings", "amy")
            expect(queue).to_contain_text("amy was taken out of the queue")
            expect(queue.get_by_text("as they run")).to_have_count(0)
