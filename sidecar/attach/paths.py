"""Where a path that an agent names lies: inside the workspace, outside it, or nowhere that is ours. Pure.

An agent spells absolute paths as it sees them. Its own starting directory stands for the workspace, which may have
been given to us under another path.
"""


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
