"""What of the disk the programs on PATH need, and which logins beside them stay out of it."""

from pathlib import Path

import pytest

from bullpen.engines.installed import entry_roots

PARTS = ("bin", "lib", "lib64", "libexec", "share", "include", "pyvenv.cfg")


@pytest.fixture
def person(tmp_path: Path) -> Path:
    path = tmp_path / "me"
    path.mkdir()
    return path


@pytest.mark.parametrize(
    ("entry", "roots"),
    [
        (".nvm/v20/bin", {f".nvm/v20/{part}" for part in PARTS}),
        (".fly/bin", {f".fly/{part}" for part in PARTS}),
        (".fly/../.fly/bin", {f".fly/../.fly/{part}" for part in PARTS}),
        (".docker", {".docker"}),
        (".pyenv/shims", {".pyenv/shims", ".pyenv"}),
        ("bin", {"bin"}),
        (".local/sbin", {".local/sbin"}),
    ],
)
def test_x2_of_an_entry_of_path_in_the_home_directory_what_programs_need(
    person: Path, entry: str, roots: set[str]
) -> None:
    assert set(entry_roots(person / entry, person)) == {person / root for root in roots}


@pytest.mark.parametrize(
    ("entry", "roots"),
    [("/opt/tool/bin", {"/opt/tool"}), ("/opt/tool", {"/opt/tool"}), ("relative/bin", set())],
)
def test_x2_elsewhere_the_install_root_of_an_entry_of_path(entry: str, roots: set[str]) -> None:
    assert set(map(str, entry_roots(Path(entry), Path("/home/me")))) == roots


@pytest.mark.parametrize(
    "secret",
    [
        *(".cargo/credentials.toml", ".local/share/keyrings/login.keyring"),
        *(".local/share/uv/credentials/credentials.toml", ".fly/config.yml", ".docker/config.json"),
        *(".pulumi/credentials.json", "shop/.env", ".nvm/v20/etc/npmrc", ".ssh/id_ed25519"),
    ],
)
def test_x5_no_login_lies_in_what_is_shown_of_path(person: Path, secret: str) -> None:
    """Also where links lead into the home directory, or out of it."""
    (person / ".local").mkdir()
    (person / "self").symlink_to(person)
    (person / "local").symlink_to(person / ".local")
    (person.parent / "elsewhere").symlink_to(person)
    (person.parent / "fly").symlink_to(person / ".fly")
    (person / ".fly" / "bin").mkdir(parents=True)
    tools = (".cargo", ".local", "local", ".fly", ".docker", ".pulumi", "shop", ".nvm/v20", "self")
    entries = [
        *(person / tool / "bin" for tool in (*tools, ".local/../.local", "self/.local")),
        *(person.parent / "elsewhere" / tool / "bin" for tool in tools),
        *(person.parent / "fly" / "bin", person / "bin", person.parent / "bin"),
    ]
    for entry in entries:
        for root in entry_roots(entry, person):
            assert not (person / secret).is_relative_to(root.resolve()), (entry, root)
            assert not (person / secret).is_relative_to(root), (entry, root)
