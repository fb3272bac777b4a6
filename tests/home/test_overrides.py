from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from bullpen.errors import BullpenError
from bullpen.home.overrides import apply_overrides, launch_role, parse_override
from bullpen.home.roles import RoleFile
from bullpen.model.override import ALLOWED, REFUSED
from bullpen.model.role import Role

ROLE = Role(name="coder", description="as written")


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("model=opus", "model", "opus"),
        ("model=3", "model", "3"),
        ("description=a=b", "description", "a=b"),
        ("description=", "description", ""),
        ("worktree.enabled=true", "worktree.enabled", True),
        ("worktree.enabled=FALSE", "worktree.enabled", False),
        ("worktree.branch_from=main", "worktree.branch_from", "main"),
        ("budget.tokens=1000", "budget.tokens", 1000),
        ("budget.usd=2.5", "budget.usd", 2.5),
        ("heartbeat.idle_timeout=10m", "heartbeat.idle_timeout", "10m"),
    ],
)
def test_r6_values_have_the_type_of_their_field(text: str, key: str, value: object) -> None:
    found = parse_override(text)
    assert found == (key, value)
    assert type(found[1]) is type(value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("model", "an override is key=value, not 'model'"),
        ("worktree.enabled=yes", 'worktree.enabled: "yes" is neither true nor false'),
        ("worktree.enabled=1", "neither true nor false"),
        ("worktree.enabled=", "neither true nor false"),
        ("budget.tokens=many", '"many" is no whole number'),
        ("budget.tokens=1.5", "no whole number"),
        ("budget.tokens=٣", "no whole number"),
        ("budget.usd=much", "no number"),
        (
            "worktree.enbaled=true",
            "no such field: worktree.enbaled · did you mean worktree.enabled?",
        ),
        ("modle=x", "no such field: modle · did you mean model?"),
        ("qqq=x", "no such field: qqq"),
        ("=x", "no such field: "),
        ("worktree=true", "worktree is a block · override one of worktree.enabled"),
        ("heartbeat=x", "heartbeat is a block"),
        ("name=x", "name cannot be overridden · edit the role file"),
        ("instructions=x", "edit the role file"),
        ("system_prompt=x", "edit the role file"),
        ("permissions=x", "edit the role file"),
        ("permissions.allow=Bash", "permissions.allow cannot be overridden · edit the role file"),
        ("permissions.agent.enabled=false", "edit the role file"),
        ("hooks.Stop=x", "edit the role file"),
        ("settings.model=x", "edit the role file"),
        ("env.TOKEN=x", "edit the role file"),
        ("command=x", "edit the role file"),
        ("labels.gpu=yes", "edit the role file"),
        ("capabilities=delegate", "edit the role file"),
        ("may_grant=ops", "edit the role file"),
        ("worktree.copy=.env", "edit the role file"),
        ("sandbox.read_write_paths=/", "edit the role file"),
    ],
)
def test_r6_what_cannot_be_overridden_says_why(text: str, says: str) -> None:
    with pytest.raises(BullpenError) as caught:
        parse_override(text)
    assert says in caught.value.message


def test_r6_missing_blocks_are_made_and_the_last_word_counts() -> None:
    role = apply_overrides(
        ROLE,
        [
            "worktree.enabled=True",
            "budget.tokens=5",
            "heartbeat.idle_timeout=10m",
            "sandbox.allow_network=false",
            "model=a",
            "model=b",
        ],
    )
    assert role.worktree.enabled
    assert role.budget.tokens == 5
    assert role.heartbeat.idle_timeout is not None
    assert (role.model, role.sandbox.allow_network) == ("b", False)
    assert role.description == "as written"


def test_r6_the_role_itself_and_what_it_sets_stay_as_they_are() -> None:
    role = Role.model_validate(
        {
            "name": "coder",
            "worktree": {"copy": [".env"]},
            "permissions": {"allow": ["Read"]},
            "hooks": {"Stop": [{"command": "x"}]},
            "heartbeat": {"idle_timeout": "5m"},
        }
    )
    changed = apply_overrides(role, ["worktree.enabled=true"])
    assert not role.worktree.enabled
    assert changed.worktree.copy_globs == (".env",)
    assert changed.hooks == role.hooks
    assert changed.heartbeat == role.heartbeat
    assert "model" not in changed.model_fields_set
    assert apply_overrides(role, []) == role


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["heartbeat.idle_timeout=tomorrow"], 'heartbeat.idle_timeout: "tomorrow" is no duration'),
        (["heartbeat.message=hello"], "needs heartbeat.idle_timeout"),
        (["agent_type=command"], "command: required with agent_type: command"),
        (["agent_type=cluade"], "did you mean claude?"),
        (["permission_mode=delegate"], "use manual"),
        (["agent_type=codex", "permission_mode=plan"], "no mode of codex"),
        (["budget.tokens=0"], "too small"),
        (["budget.usd=nan"], "no number"),
        (["budget.usd=1e999"], "no number"),
        (["model=--flag"], "does not begin with -"),
    ],
)
def test_r6_the_result_is_checked_as_a_whole(overrides: list[str], says: str) -> None:
    with pytest.raises(BullpenError) as caught:
        apply_overrides(ROLE, overrides)
    assert says in caught.value.message


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = prefix + (field.alias or name)
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from leaves(kind, f"{key}.")
        else:
            yield key


def test_r6_every_field_of_a_role_is_either_allowed_or_refused() -> None:
    known = {
        key for key in leaves(Role) if not any(key.startswith(f"{refused}.") for refused in REFUSED)
    } | {"permissions"}
    assert known == set(ALLOWED) | set(REFUSED)


@pytest.mark.parametrize(
    "key",
    [
        *(
            "name",
            "instructions",
            "system_prompt",
            "permissions.allow",
            "permissions.deny",
            "hooks",
        ),
        *("settings", "env", "command", "capabilities", "may_grant", "sandbox.read_only_paths"),
        *("sandbox.read_write_paths", "sandbox.ssh_agent", "sandbox.processes"),
        *("sandbox.memory_mb", "worktree.copy"),
    ],
)
def test_r6_who_an_agent_is_and_what_it_may_do_is_changed_in_its_file_only(key: str) -> None:
    with pytest.raises(BullpenError, match="cannot be overridden"):
        parse_override(f"{key}=true")
    assert not set(ALLOWED) & set(REFUSED)


def test_r6_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(BullpenError) as caught:
        apply_overrides(ROLE, ["modle=x", "worktree.enabled=yes", "permission_mode=loud"])
    lines = caught.value.message.splitlines()
    assert [line.partition(" ")[0] for line in lines] == [
        "no",
        "worktree.enabled:",
        "permission_mode:",
    ]


@pytest.mark.parametrize(
    ("mode", "engine", "fits"),
    [
        ("acceptEdits", "codex", "on-request"),
        ("acceptEdits", "gemini", "auto_edit"),
        ("manual", "gemini", "default"),
        ("bypassPermissions", "gemini", "yolo"),
    ],
)
def test_r6_another_engine_gets_its_own_words(mode: str, engine: str, fits: str) -> None:
    role = Role(name="coder", model="opus", permission_mode=mode)
    changed = apply_overrides(role, [f"agent_type={engine}"])
    assert (changed.agent_type, changed.permission_mode) == (engine, fits)
    assert changed.model is None  # that engine's choice
    assert apply_overrides(role, ["model=x", f"agent_type={engine}"]).model == "x"
    assert apply_overrides(role, ["agent_type=claude"]) == role.model_copy(
        update={"agent_type": "claude"}
    )


def test_r6_a_mode_that_another_engine_does_not_have_is_named() -> None:
    role = Role(name="coder", permission_mode="plan")
    with pytest.raises(BullpenError, match='permission_mode: "plan" is no mode of codex'):
        apply_overrides(role, ["agent_type=codex"])


def test_r1_an_empty_model_means_the_default() -> None:
    assert Role(name="coder", model="").model is None
    assert apply_overrides(Role(name="coder", model="opus"), ["model="]).model is None


def persona(directory: Path, text: bytes, fields: str = "") -> RoleFile:
    (directory / "CLAUDE.md").write_bytes(text)
    (directory / "role.yaml").write_text(f"name: boss\n{fields}")
    return RoleFile("boss", directory / "role.yaml")


def test_w9_a_persona_stands_in_front_of_the_instructions(tmp_path: Path) -> None:
    file = persona(tmp_path, b"# You lead.\n", "instructions: Write little.\n")
    assert launch_role(file, ["model=opus"]).instructions == "# You lead.\n\nWrite little."
    assert launch_role(file, ["model=opus"]).model == "opus"


def test_w9_a_persona_alone_is_the_instructions(tmp_path: Path) -> None:
    assert launch_role(persona(tmp_path, b"# You lead.\n"), []).instructions == "# You lead."
    assert launch_role(persona(tmp_path, b" \n"), []).instructions is None


def test_w9_a_persona_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(BullpenError, match=r"cannot read the persona .*CLAUDE.md: it is not UTF-8"):
        launch_role(persona(tmp_path, b"\xff"), [])
