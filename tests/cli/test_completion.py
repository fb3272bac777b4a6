"""Completion, in the shells themselves."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bullpen.cli.main import SHOWN
from tests.commands import BULLPEN, Ran

pytestmark = pytest.mark.slow

Bullpen = Callable[..., Ran]


def shell(name: str, *words: str | Path) -> str:
    """What a shell prints that finds our `bullpen` first."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    path = f"{BULLPEN.parent}:{os.environ['PATH']}"
    return subprocess.run(
        [name, *words],
        env={**os.environ, "PATH": path, "TERM": "dumb"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    ).stdout


@pytest.fixture
def script(tmp_path: Path, bullpen: Bullpen) -> Callable[[str], Path]:
    def write(name: str) -> Path:
        path = tmp_path / f"completion.{name}"
        path.write_text(bullpen("completion", name).out)
        return path

    return write


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("ver", ["version"]),
        ("doctor", ["doctor"]),
        ("", list(SHOWN)),
        ("init --g", ["--global"]),
        ("completion f", ["fish"]),
        ("nonsense", []),
    ],
)
def test_bash_completes(script: Callable[[str], Path], words: str, offered: list[str]) -> None:
    typed = words.split(" ")
    said = shell(
        "bash",
        "-c",
        'source "$1"; shift; COMP_WORDS=(bullpen "$@"); COMP_CWORD=$#; _bullpen_completion bullpen;'
        '[ ${#COMPREPLY[@]} = 0 ] || printf "%s\\n" "${COMPREPLY[@]}"; complete -p bullpen >&2',
        "bash",
        script("bash"),
        *typed,
    )
    assert said.split() == offered


@pytest.mark.parametrize(("words", "offered"), [("ver", "version"), ("init --g", "--global")])
def test_fish_completes(script: Callable[[str], Path], words: str, offered: str) -> None:
    said = shell("fish", "-c", f"source {script('fish')}; complete -C 'bullpen {words}'")
    assert [line.split("\t")[0] for line in said.splitlines()] == [offered]


def test_zsh_script_parses_and_can_be_autoloaded(script: Callable[[str], Path]) -> None:
    path = script("zsh")
    shell("zsh", "-n", path)
    assert path.read_text().startswith("#compdef bullpen\n# ")


ZSH = """
zmodload zsh/zpty
zpty inner zsh -f -i
zpty -w inner "PS1=; autoload -U compinit; compinit -u -D; $1; echo rea''dy"
zpty -r inner said '*ready*'
zpty -w inner $'bullpen vers\\t'
zpty -r inner said '*(platform|no such command)*'
print -r -- $said
"""


@pytest.mark.parametrize(
    "load", ['eval "$(bullpen completion zsh)"', "fpath=($PWD/fp $fpath); compinit -u -D"]
)
@pytest.mark.few(1)
def test_zsh_completes_at_its_prompt(
    script: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fp").mkdir()
    shutil.copy(script("zsh"), tmp_path / "fp/_bullpen")
    assert "platform" in shell("zsh", "-f", "-c", ZSH, "zsh", load)


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_script_says_how_to_install_it(bullpen: Bullpen, name: str) -> None:
    ran = bullpen("completion", name)
    assert ran.code == 0
    comments = [line for line in ran.out.splitlines()[:2] if line.startswith("# ")]
    assert len(comments) == 1
    assert f"bullpen completion {name}" in comments[0]
    assert bullpen("completion", SHELL=f"/usr/bin/{name}").out == ran.out


@pytest.mark.storm
def test_zsh_completes_with_the_line_that_it_says(bullpen: Bullpen) -> None:
    said = bullpen("completion", "zsh").out.splitlines()[1]
    line = said.partition("~/.zshrc: ")[2].replace("&& compinit", "&& compinit -u -D")
    bare = ZSH.replace("autoload -U compinit; compinit -u -D; ", "")
    assert "platform" in shell("zsh", "-f", "-c", bare, "zsh", line)


def test_templates_of_pods_are_completed(home: Path, bullpen: Bullpen) -> None:
    env = {"_BULLPEN_COMPLETE": "bash_complete", "COMP_CWORD": "3"}
    ran = bullpen(COMP_WORDS="bullpen pod launch fe", **env)
    assert ran.out.splitlines() == ["plain,feature"]
    assert (
        bullpen(COMP_WORDS="bullpen pod launch fe", BULLPEN_DIR="/nowhere", **env).out.strip() == ""
    )


def test_unknown_shell_is_a_clear_error(bullpen: Bullpen) -> None:
    for ran in (bullpen("completion", "tcsh"), bullpen("completion", SHELL="/bin/tcsh")):
        assert ran.code == 2
        assert "'tcsh'" in ran.err
        assert ran.out == ""
    assert "bullpen completion zsh" in bullpen("completion", SHELL="").err
