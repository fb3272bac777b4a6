"""Which variables a sandboxed program gets: a list of allowed ones, and those set for it. Pure.

A token in the person's shell stays outside because its name is not listed, not because it is
known to be a secret.
"""

from collections.abc import Mapping

from bullpen.sandboxes.base import Policy

NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ"),
        *("TERM", "COLORTERM", "COLORFGBG", "NO_COLOR", "FORCE_COLOR", "LINES", "COLUMNS"),
        *("IS_SANDBOX", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR"),
        *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("PORT", "COMPOSE_PROJECT_NAME"),  # of its worktree (`worktrees/port_blocks`)
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    }
)
PREFIXES = (*("LC_", "BULLPEN_", "GIT_AUTHOR_", "GIT_COMMITTER_", "PIP_", "npm_config_", "OTEL_"),)
# A person's key is out of reach: a configured signature would make every commit fail. gc would
# fail by itself where git is read-only; where it is not, `objects/info` still is.
UNSIGNED = {"commit.gpgSign": "false", "tag.gpgSign": "false"}
ALWAYS = {
    "gc.auto": "0",
    "maintenance.auto": "false",
    "gc.writeCommitGraph": "false",
    "repack.updateServerInfo": "false",
}


def cut(env: Mapping[str, str], policy: Policy) -> dict[str, str]:
    """What of it may be known inside."""
    prefixes = (*PREFIXES, *policy.prefixes)
    return {
        name: value
        for name, value in env.items()
        if name in NAMES or name in policy.keep or name.startswith(prefixes)
    }


def added(env: Mapping[str, str], policy: Policy) -> dict[str, str]:
    """What is set for it: git's settings, the way to the network, the person's ssh agent."""
    settings = ALWAYS if policy.ssh_agent else {**ALWAYS, **UNSIGNED}
    result = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        result |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    if policy.ssh_agent:
        result["SSH_AUTH_SOCK"] = str(policy.ssh_agent)
    if policy.network:
        proxy = f"http://127.0.0.1:{policy.network.proxy_port}"
        near = "127.0.0.1,localhost"
        for name, value in (("HTTP_PROXY", proxy), ("HTTPS_PROXY", proxy), ("NO_PROXY", near)):
            result |= {name: value, name.lower(): value}
    result.setdefault("HOME", env.get("HOME", str(policy.person)))
    return result
