"""The set-up of a worktree in a sandbox: what it runs may have been written by an agent."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bullpen import worktrees
from bullpen.engines.programs import path_roots
from bullpen.model.role import SandboxSettings
from bullpen.sandboxes.setup import SetupSandbox
from bullpen.worktrees import Site, Spec
from tests.worktrees.repos import assert_healthy, make_repo, refs

pytestmark = pytest.mark.slow

SECRET = "what-only-the-person-may-read"
# What a forged set-up script would do; each leaves a trace in `found`, or outside.
ATTEMPTS = """
cat {person}/.ssh/id >>found
cat {home}/state.db >>found
cat {home}/worktrees/bob/secret >>found
echo planted >>{person}/.bashrc
echo '[planted]' >>{common}/config
mkdir -p {common}/hooks; echo planted >>{common}/hooks/post-checkout
git update-ref refs/heads/planted HEAD
echo planted >.git; mv .git away && echo planted >.git
ls /proc/self/fd | wc -l >descriptors
touch done
true
"""


@pytest.fixture
def person(tmp_path: Path) -> Path:
    for name, text in ((".ssh/id", SECRET), (".bashrc", "")):
        (tmp_path / "person" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "person" / name).write_text(text)
    return tmp_path / "person"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    home = tmp_path / "home"
    (home / "worktrees" / "bob").mkdir(parents=True)
    (home / "worktrees" / "bob" / "secret").write_text(SECRET)
    (home / "state.db").write_text(SECRET)
    return worktrees.open_site(make_repo(tmp_path / "repo"), home / "worktrees")


@pytest.fixture
def sandbox(site: Site, person: Path) -> Callable[..., SetupSandbox]:
    def make(**rules: object) -> SetupSandbox:
        home = site.base.parent
        return SetupSandbox(
            home=home,
            person=person,
            programs=tuple(path_roots(os.environ["PATH"], person, ())),
            rules=SandboxSettings.model_validate(rules),
            variables={"OF_THE_ROLE": "known"},
        )

    return make


def outside(site: Site, person: Path) -> dict[Path, bytes]:
    """What no set-up may change."""
    common = site.repo.common_dir
    files = [common / "config", person / ".bashrc", person / ".ssh" / "id"]
    files += [path for path in (common / "hooks").iterdir() if "sample" not in path.name]
    return {path: path.read_bytes() for path in files}


def attempt(site: Site, person: Path, wrap: SetupSandbox | None) -> tuple[str, str]:
    names = {"person": person, "home": site.base.parent, "common": site.repo.common_dir}
    setup = ATTEMPTS.format(**names)
    path = worktrees.create(site, Spec("amy", setup=setup, setup_sandbox=wrap))
    assert (path / "done").exists(), (site.records / "amy.setup.log").read_text()
    found = path / "found"
    return found.read_text() if found.exists() else "", (path / ".git").read_text()


def test_w14_a_forged_setup_reaches_the_worktree_and_nothing_else(
    site: Site, person: Path, sandbox: Callable[..., SetupSandbox]
) -> None:
    before = outside(site, person)
    found, git_file = attempt(site, person, sandbox())
    assert SECRET not in found
    assert git_file.startswith("gitdir: ")
    assert outside(site, person) == before
    assert refs(site) == {"main", "amy"}
    # Those of `ls`: ours would be the journal's, which says what is undone.
    assert int((site.base / "amy" / "descriptors").read_text()) == 4
    assert_healthy(site)


def test_w14_without_a_sandbox_it_reaches_everything(site: Site, person: Path) -> None:
    before = outside(site, person)
    found, git_file = attempt(site, person, None)
    assert found.count(SECRET) == 3
    assert git_file == "planted\n"
    assert len(outside(site, person)) > len(before)
    assert "planted" in refs(site)
    assert int((site.base / "amy" / "descriptors").read_text()) > 4


def test_w14_a_setup_works_in_its_sandbox_as_without(
    site: Site, person: Path, sandbox: Callable[..., SetupSandbox], tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    setup = (
        "pwd -P; git symbolic-ref HEAD; git status --porcelain; echo $OF_THE_ROLE;"
        f" mkdir ~/.cache; echo x >~/.cache/x; echo x >>{shared}/count"
    )
    wrap = sandbox(read_write_paths=[str(shared), "cache"], read_only_paths=["."])
    path = worktrees.create(site, Spec("amy", setup=setup, setup_sandbox=wrap))
    log = (site.records / "amy.setup.log").read_text()
    assert log == f"{path}\nrefs/heads/amy\nknown\n"
    assert (shared / "count").read_text() == "x\n"
    assert not (person / ".cache").exists()


def test_w14_the_network_of_a_setup_is_the_roles_to_forbid(
    site: Site, sandbox: Callable[..., SetupSandbox]
) -> None:
    setup = "wc -l </proc/net/dev"
    wrap = sandbox(allow_network=False)
    worktrees.create(site, Spec("amy", setup=setup, setup_sandbox=wrap))
    assert int((site.records / "amy.setup.log").read_text()) == 3  # two of the head, and `lo`


def test_w14_a_failure_in_the_sandbox_tells_the_tail_of_its_output(
    site: Site, sandbox: Callable[..., SetupSandbox]
) -> None:
    with pytest.raises(worktrees.WorktreeError) as raised:
        spec = Spec("amy", setup="seq 1 3000; echo 'the reason' >&2; exit 7")
        worktrees.create(site, replace(spec, setup_sandbox=sandbox()))
    assert raised.value.code is worktrees.Code.SETUP_FAILED
    assert "exit 7" in raised.value.message and raised.value.message.endswith("the reason")
    assert not worktrees.exists(site, "amy")


def test_x3_no_setup_without_its_sandbox(
    site: Site,
    sandbox: Callable[..., SetupSandbox],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    program = tmp_path / "without" / "bwrap"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(worktrees.WorktreeError) as raised:
        worktrees.create(site, Spec("amy", setup="touch ran", setup_sandbox=sandbox()))
    assert raised.value.code is worktrees.Code.SETUP_FAILED
    for words in ("the set-up needs a sandbox", "No permissions", "sandbox.enabled: false"):
        assert words in raised.value.message
    assert not worktrees.exists(site, "amy")
    assert_healthy(site)
