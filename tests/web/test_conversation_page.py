"""A conversation in a real browser: edits as diffs, each result with its tool (V6)."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Route, expect

from tests.engines.cli import Claude
from tests.engines.fake_anthropic import FakeAnthropic
from tests.engines.programs import bare_claude, install
from tests.web.page import made_view, violations
from tests.web.scene import made_scene

pytestmark = pytest.mark.slow


def step(word: str, tool: str, **given: Any) -> str:
    return f"{word} {tool} {json.dumps(given)}"


def test_v6_edits_are_read_as_diffs_and_each_result_stands_with_its_tool(tmp_path: Path) -> None:
    with FakeAnthropic() as model, made_scene() as scene:
        install(scene.pen, "claude", bare_claude(Claude(tmp_path, model)))
        tree = {"enabled": True, "branch_from": "main"}
        scene.pen.role("fixer", worktree=tree, permissions={"allow": ["Write", "Edit", "Bash"]})
        file = str(scene.pen.home.root / "worktrees" / "nina" / "new.py")
        edit = {"file_path": file, "old_string": "two", "new_string": "2", "replace_all": True}
        steps = [
            step("tool", "Bash", command="sleep 1; echo first", description="Wait"),
            step("also", "Write", file_path=file, content="one\ntwo\n"),
            step("tool", "Edit", **edit),
            "say All is done",
        ]
        scene.start("nina", role="fixer", prompt=f"Change it [[{' ; '.join(steps)}]]")
        with made_view(scene) as view, view.page() as page:
            page.goto("/agents/nina/conversation")
            expect(page.get_by_text("All is done", exact=True)).to_be_visible()
            tools = page.locator("details.tool")
            expect(tools).to_have_count(3)
            bash, write, change = (tools.nth(at) for at in range(3))
            expect(bash.locator("pre")).to_have_count(0)
            bash.locator("summary").click()
            expect(bash.locator("pre")).to_contain_text("sleep 1; echo first\n⟨description⟩ Wait")
            expect(bash.locator("pre")).to_contain_text("first")
            expect(write.locator("summary")).to_have_text("Writenew.py+2 −0")
            expect(write.locator("tr.add")).to_have_text(["+one", "+two"])
            expect(write.locator("pre")).to_contain_text("new.py")
            expect(change.locator("tr.del")).to_have_text("−two")
            expect(change.locator("tr.add")).to_have_text("+2")
            expect(change.locator("div.note")).to_have_text("⟨replace_all⟩ true")
            assert not violations(page)
            page.set_viewport_size({"width": 360, "height": 760})
            assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_v6_a_long_conversation_loses_nothing_when_something_happens_while_it_is_read() -> None:
    texts = ["one", "two", "three"]
    held: list[Route] = []

    def answer(route: Route) -> None:
        at = int(parse_qs(urlsplit(route.request.url).query)["offset"][0])
        if at == 1 and not held:
            held.append(route)  # not answered before something else happens
            return
        entry = {"kind": "answer", "at": 1, "text": texts[at], "tool": "", "key": str(at)}
        entry |= {"call": "", "input": None}
        more = at + 1 < len(texts)
        fields = {"conversation": "c", "entries": [entry], "offset": at + 1, "more": more}
        route.fulfill(json=fields)

    with made_scene() as scene:
        scene.start("nina", role="thinker")
        with made_view(scene) as view, view.page(errors=("ERR_",)) as page:
            page.route("**/transcript*", answer)
            with page.expect_request("**/transcript?offset=1"):
                page.goto("/agents/nina/conversation")
            scene.works("nina", "Bash")
            expect(page.locator(".content .said")).to_have_text(texts)
