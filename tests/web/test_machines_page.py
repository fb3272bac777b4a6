"""Other machines of the fleet in the page: who is there, and never an old state as present (L1)."""

import pytest
from playwright.sync_api import expect

from tests.fleet.machines import made_machines
from tests.web.page import made_view
from tests.web.scene import made_scene

pytestmark = pytest.mark.slow


def test_l1_the_page_shows_other_machines_and_says_when_they_are_away() -> None:
    with made_scene() as scene, made_machines("desk", laptop=scene.pen) as machines:
        desk = machines.hosts["desk"]
        desk.run("cat", name="amy")
        with made_view(scene) as view, view.page() as page:
            card = page.get_by_role("region", name="Other machines")
            machine = card.get_by_role("group", name="Machine desk")
            expect(machine).to_contain_text("1 agent running")
            expect(machine.locator(".row")).to_have_count(2)
            expect(machine.locator(".row").nth(1)).to_contain_text("amy")
            expect(card).not_to_contain_text("cannot be reached")
            machines.kill_server()
            expect(machine).to_contain_text("cannot be reached · had 1 agent running")
            expect(machine.locator(".row").nth(1)).to_contain_text("was")
            expect(card).to_contain_text("This machine goes on by itself.")


@pytest.mark.storm
def test_l1_a_page_without_a_fleet_says_nothing_of_one() -> None:
    with made_scene() as scene, made_view(scene) as view, view.page() as page:
        # Asked of this document alone: a response of one that is left has no body any more.
        page.wait_for_function(
            "() => performance.getEntriesByType('resource')"
            ".some(entry => entry.name.endsWith('/api/fleet') && entry.responseEnd > 0)"
        )
        assert page.evaluate("fetch('/api/fleet').then(answer => answer.json())")["link"] == "none"
        expect(page.get_by_role("region", name="What changed")).to_be_visible()
        assert page.get_by_role("region", name="Other machines").count() == 0
