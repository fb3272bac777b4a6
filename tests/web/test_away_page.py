"""The page when the network or the view is away for a while: it goes on, and has missed nothing
(V1, V4, V11)."""

import pytest
from playwright.sync_api import Page, expect

from tests.web.page import made_view
from tests.web.scene import Scene, made_scene

pytestmark = pytest.mark.slow


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
            expect_behind(page, "Behind by")
            happen(scene)
            assert pen.cli("web", "start", "--regen-cert").code == 0
            assert (pen.root / "web" / "ca.pem").read_bytes() == files["ca.pem"]
            assert (pen.root / "web" / "cert.pem").read_bytes() != files["cert.pem"]
            expect_whole(page)
