"""The command line that an engine's settings name for its hooks.

Called by the engines when they write an agent's settings. The line must work while the package is
upgraded under a running agent: it names only the directory that the package is imported from.
"""

# Without the package (removed, or in the middle of an upgrade) the agent is left alone.
CODE = """\
import sys
sys.path.insert(0, {root})
try:
    from bullpen.hot.{module} import main
except ImportError:
    sys.exit()
main()
"""


def hook_line(python: str, package_root: str, agent: str) -> list[str]:
    """The words of the command that hands an event over.

    `python` is the interpreter that bullpen is installed for (its `sys.executable`, not what
    that links to: when in doubt the line runs the whole command line with it), and
    `package_root` the directory that holds the package.
    """
    return _line(python, package_root, "hook", agent)


def ask_line(python: str, package_root: str, agent: str) -> list[str]:
    """The same for the command that asks for a permission, and waits for the answer."""
    return _line(python, package_root, "permission", agent)


def mcp_line(python: str, package_root: str, socket: str) -> list[str]:
    """The same for the relay to the hub's tools; `socket` is the agent's own."""
    return _line(python, package_root, "mcp_relay", socket)


def _line(python: str, package_root: str, module: str, agent: str) -> list[str]:
    code = CODE.format(root=ascii(package_root), module=module)
    return [python, "-I", "-S", "-c", code, agent]
