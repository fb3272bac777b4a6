"""Ctrl-C in commands whose work goes on in the hub: that is told, and is no error."""

from pathlib import Path
from typing import Any, NoReturn

import pytest

from bullpen.cli.commands import land, pod
from bullpen.cli.main import run
from bullpen.client.hub import Hub
from bullpen.home.paths import Home


class InterruptedHub(Hub):
    """Somebody presses Ctrl-C while it is waited for."""

    def do(self, _call: Any) -> NoReturn:
        raise KeyboardInterrupt

    def stream(self, _call: Any) -> NoReturn:
        raise KeyboardInterrupt


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return InterruptedHub(Home(tmp_path), start=False)


def test_n3_a_landing_that_goes_on_is_no_error(
    hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        land.wait_for(hub, ["l-1"])
    assert capsys.readouterr().err == (
        "the landing goes on without you · bullpen land --list · bullpen land --cancel NAME\n"
    )


def test_p5_a_pod_that_goes_on_starting_is_no_error(
    hub: Hub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod, "connect", lambda: hub)
    assert run(["pod", "launch", "team"]) == 130
    assert capsys.readouterr().err == (
        "it goes on without you · bullpen pod list · bullpen pod stop POD\n"
    )
