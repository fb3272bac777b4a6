"""What a director of one repository remembers is never another's: D2."""

import itertools
from pathlib import Path

import pytest

from bullpen.directors.forge import github, gitlab
from bullpen.directors.forge.origin import Origin
from bullpen.directors.forge.work import ForgeMemory
from bullpen.errors import BullpenError, Kind

SHOP = Origin("github", github.SERVER, "acme/shop", github.SERVER)
OTHERS = (
    Origin("github", github.SERVER, "acme/other", github.SERVER),
    Origin("github", "https://github.example.com/api/v3", "acme/shop", github.SERVER),
    Origin("gitlab", gitlab.SERVER, "acme/shop", gitlab.SERVER),
    Origin("gitlab", "https://example.com", "acme/shop", gitlab.SERVER),
    Origin("gitlab", "http://localhost", "acme/shop", gitlab.SERVER),
    Origin("gitlab", "http://127.0.0.1:8080", "acme/shop", gitlab.SERVER),
)
FILE = Path("directors/robo/memory.json")


def test_d2_a_memory_is_of_the_repository_that_it_was_made_for() -> None:
    memory = SHOP.bind(ForgeMemory(over={1: "approved"}), FILE)
    assert memory.over == {1: "approved"} and SHOP.bind(memory, FILE) == memory
    for other in OTHERS:
        with pytest.raises(BullpenError) as raised:
            other.bind(memory, FILE)
        assert str(SHOP) in raised.value.message and str(other) in raised.value.message
        assert "move that file away" in raised.value.hint
        assert raised.value.kind is Kind.CONFLICT


def test_d2_a_memory_that_holds_nothing_goes_on_with_an_address_that_was_corrected() -> None:
    for other in OTHERS:
        bound = other.bind(SHOP.bind(ForgeMemory(), FILE), FILE)
        assert bound == ForgeMemory(origin=str(other))


def test_d2_each_repository_has_a_clone_of_its_own() -> None:
    root = Path("/home/projects")
    assert SHOP.clone(root) == root / "acme" / "shop"
    clones = [each.clone(root) for each in (SHOP, *OTHERS)]
    assert len(set(clones)) == len(clones)
    for one, other in itertools.permutations(clones, 2):
        assert not one.is_relative_to(other)
    # A colon would separate two directories where git has a list of them.
    assert all(":" not in str(clone) for clone in clones)
