"""The block `fleet:` of a `config.yaml`."""

import stat

import pytest

from bullpen.errors import BullpenError
from bullpen.fleet.config_block import set_fleet, with_block
from bullpen.home.paths import Home
from bullpen.home.settings import Fleet, load_settings
from bullpen.model.fleet import HostState
from tests.homes import STARTER

FLEET = Fleet(url="nats://h:4222", name="h1", labels={"gpu": "yes: #1"})


@pytest.mark.parametrize(
    "text",
    ["", "port: 9100\n", "# mine\nport: 9100  # why\n", (STARTER / "config.yaml").read_text()],
)
def test_l5_join_and_leave_give_back_the_file_that_was(tmp_path, text: str) -> None:
    joined = with_block(text, FLEET)
    file = tmp_path / "config.yaml"
    file.write_text(joined)
    assert load_settings(file).fleet == FLEET
    assert joined.startswith(text)
    again = Fleet(url="tls://other:1", name="h2")
    assert with_block(with_block(joined, again), FLEET) == joined
    assert with_block(joined, Fleet()) == text


def test_l5_what_stands_after_the_block_stays(tmp_path) -> None:
    text = "fleet:\n  url: nats://h\n  # why\n  name: h1\nport: 9100\n"
    assert with_block(text, Fleet()) == "port: 9100\n"
    file = Home(tmp_path).config_file
    file.write_text(with_block(text, FLEET))
    assert load_settings(file).port == 9100


def test_l5_a_link_and_the_mode_of_the_file_stay(tmp_path) -> None:
    real = tmp_path / "dotfiles.yaml"
    real.write_text("port: 9100\n")
    real.chmod(0o600)
    home = Home(tmp_path / "home")
    home.credentials.mkdir(parents=True)
    home.config_file.symlink_to(real)
    set_fleet(home, FLEET)
    assert home.config_file.is_symlink() and load_settings(real).fleet == FLEET
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    set_fleet(home, Fleet())
    assert real.read_text() == "port: 9100\n"


@pytest.mark.parametrize("labels", [{"k": "x" * 200}, {"x" * 200: "v"}])
def test_l5_a_label_is_as_long_as_others_may_read(tmp_path, labels: dict[str, str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(with_block("", Fleet(url="nats://h", name="h1", labels=labels)))
    HostState(name="h1", version="1", labels=load_settings(file).fleet.labels, at=0)
    file.write_text(file.read_text().replace("x" * 200, "x" * 201))
    with pytest.raises(BullpenError, match="a label has at most 200 characters"):
        load_settings(file)
