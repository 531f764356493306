"""Where a path that an agent names lies: inside the workspace, outside it, or nowhere that is ours. Pure.

An agent spells absolute paths as it sees them. Its own starting directory stands for the workspace, which may have
been given to us under another path.
"""

from fnmatch import fnmatchcase

from sidecar.policy.tables import CredentialNames


def relative_to(path: bytes, *, cwd: bytes, root: bytes) -> bytes:
    """Give a path relative to the workspace, or absolute where it lies outside; `..` and `.` are worked out as text."""
    absolute = normal(path if path.startswith(b"/") else cwd + b"/" + path)
    for base in (root, normal(cwd)):
        if absolute == base:
            return b""
        if absolute.startswith(base.rstrip(b"/") + b"/"):
            return absolute[len(base.rstrip(b"/")) + 1 :]
    return absolute


def normal(path: bytes) -> bytes:
    """Work out `.`, `..` and doubled slashes of an absolute path."""
    parts: list[bytes] = []
    for part in path.split(b"/"):
        if part == b"..":
            parts = parts[:-1]
        elif part not in (b"", b"."):
            parts.append(part)
    return b"/" + b"/".join(parts)


def may_follow_outside(path: bytes, *, excluded: tuple[bytes, ...], credentials: CredentialNames) -> bool:
    """Tell whether a file outside the workspace may be captured: not the agent's, and nothing like a credential."""
    if any(path == place or path.startswith(place + b"/") for place in excluded):
        return False
    parts = path.lower().split(b"/")
    if any(part in credentials.folders for part in parts[:-1]):
        return False
    return not any(fnmatchcase(parts[-1].decode("latin-1"), name.decode("latin-1")) for name in credentials.names)
