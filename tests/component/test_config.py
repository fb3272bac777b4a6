"""The config of a component: what a change changes now, and what only after a restart."""

import pytest

from bullpen.component.config import ComponentConfig, plan_change, shown_config
from bullpen.errors import BullpenError


class Config(ComponentConfig):
    """With a key that may change while it runs, and a credential."""

    greeting: str = "hello"
    api_token: str = ""


LIVE = {"log_level", "greeting"}


def test_c5_live_keys_change_now_and_others_after_a_restart() -> None:
    config, given = Config(port=9000), {"greeting": "good day", "port": 9001}
    change = plan_change(config, {"port": 9000}, given, LIVE)
    assert change.config == Config(port=9000, greeting="good day")
    assert (change.changed, change.needs_restart) == (("greeting",), ("port",))
    # Kept for the next change: without it that one would undo this one.
    assert change.data == {"port": 9000, "greeting": "good day"}
    again = plan_change(change.config, change.data, {"log_level": "warn"}, LIVE)
    assert again.config == Config(port=9000, greeting="good day", log_level="warn")


def test_c5_the_same_again_changes_nothing() -> None:
    change = plan_change(Config(), {}, {"greeting": "hello"}, LIVE)
    assert (change.changed, change.needs_restart) == ((), ())


def test_c5_one_mistake_refuses_the_whole_change() -> None:
    with pytest.raises(BullpenError, match="gretting: unknown key") as caught:
        plan_change(Config(), {}, {"gretting": "x", "greeting": "y"}, LIVE)
    assert len(caught.value.details["problems"]) == 1


def test_c1_a_credential_is_not_shown() -> None:
    assert shown_config(Config(api_token="hush-hush"))["api_token"] == "[redacted]"
