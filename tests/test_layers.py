"""The direction of imports, and a few habits, held by reading the source.

    errors, ids, clock -> model -> policy.tables, policy.parse -> pure rooms -> fs, policy.load -> store
        -> watch, agents, transcript -> the verbs' other rooms -> attach -> cli

A module imports from rows above its own, or from its own package. Verbs meet in model and store, and are composed by
attach and cli alone. Rooms that do not exist yet are no trouble; a package that has no row is.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent

VERBS = {"capture", "checkpoint", "rewind", "sweep", "resume", "repair", "compact", "memory"}
COMPOSERS = {"attach", "cli"}
ROWS = {
    "": 0,
    "errors": 0,
    "ids": 0,
    "clock": 0,
    "model": 1,
    "policy": 2,
    "policy.tables": 2,
    "policy.parse": 2,
    "policy.load": 4,
    "fs": 4,
    "store": 5,
    "watch": 6,
    "agents": 6,
    "transcript": 6,
    **dict.fromkeys(VERBS, 7),
    "attach": 8,
    "cli": 9,
    "__main__": 9,
}
PURE_ROW = 3
PURE_NAMES = {"plan", "place", "lines", "graph", "settle", "diff", "gitignore", "ignore", "origin"}
PURE_MODULES = {"model", "policy.tables", "policy.parse", "agents.history"}
IMPURE = {
    *("os", "io", "pathlib", "sqlite3", "time", "threading", "watchdog", "subprocess", "socket", "shutil", "tempfile"),
    *("logging", "asyncio", "fcntl", "select", "signal", "ctypes", "mmap", "glob", "random", "secrets", "psutil"),
}
MOST_LINES = 400


def violations(sources: dict[str, str]) -> Iterator[str]:
    """Find what breaks the rules in modules named as from inside the package (`fs.read`, `fs` for its `__init__`)."""
    for module, source in sources.items():
        row = _row(module)
        if row is None:
            yield f"{module}: no row for this package"
            continue
        lines = source.count("\n")
        if lines > MOST_LINES:
            yield f"{module}: {lines} lines"
        tree = ast.parse(source)
        for line, imported in _imports(tree, module, sources):
            yield from (f"{module}:{line}: {why}" for why in _import_faults(module, row, imported))
        for node in ast.walk(tree):
            yield from (f"{module}:{node.lineno}: {why}" for why in _habit_faults(module, node))  # type: ignore[attr-defined]


def _import_faults(module: str, row: int, imported: str) -> Iterator[str]:
    if not imported.startswith("sidecar"):
        if _is_pure(module) and imported.split(".", maxsplit=1)[0] in IMPURE:
            yield f"a pure room imports {imported}"
        return
    name = imported.removeprefix("sidecar").removeprefix(".")
    own, other = _package(module), _package(name)
    above = _row(name)
    if above is None:
        yield f"imports {imported}, which has no row"
    elif above > row or (above == row and own != other and row not in (0, 9)):
        yield f"imports {imported} from row {above}, being in row {row}"
    if other in VERBS and own != other and own not in COMPOSERS:
        yield f"imports {imported}, a room of another verb"


def _habit_faults(module: str, node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Name(id="print")) if _package(module) != "cli":
            yield "prints"
        case ast.Call(func=ast.Name(id="open" | "input")) if _is_pure(module):
            yield "a pure room opens a file"
        case ast.ExceptHandler(type=None):
            yield "a bare except"
        case ast.ExceptHandler(type=ast.expr() as kind, body=body) if _is_wide(kind) and all(map(_is_nothing, body)):
            yield "swallows every exception"
        case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress"), args=args) if any(
            map(_is_wide, args)
        ):
            yield "swallows every exception"


def _is_wide(kind: ast.expr) -> bool:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(isinstance(k, ast.Name) and k.id in ("Exception", "BaseException") for k in kinds)


def _is_nothing(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.Pass, ast.Continue)) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _imports(tree: ast.Module, module: str, sources: dict[str, str]) -> Iterator[tuple[int, str]]:
    """List what is imported, also inside functions; `from sidecar.fs import read` is the module where there is one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = ["sidecar", *module.split(".")][: -node.level] if module else ["sidecar"]
                base = ".".join([*parts, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                name = full.removeprefix("sidecar.")
                is_module = full.startswith("sidecar.") and (name in sources or name in ROWS)
                yield node.lineno, full if is_module else base


def _row(module: str) -> int | None:
    if _package(module) not in COMPOSERS and "." in module and module.rpartition(".")[2] in PURE_NAMES:
        return PURE_ROW
    return ROWS.get(module, ROWS.get(_package(module)))


def _is_pure(module: str) -> bool:
    return _row(module) == PURE_ROW or module in PURE_MODULES


def _package(module: str) -> str:
    return module.split(".", maxsplit=1)[0]


def _sources() -> dict[str, str]:
    package = CHECKOUT / "sidecar"
    found = {}
    for file in package.rglob("*.py"):
        parts = file.relative_to(package).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file.read_text()
    return found


def test_the_package_keeps_the_rules() -> None:
    assert list(violations(_sources())) == []


PLANTED = {
    "upward": {"fs.read": "from sidecar.store import blobs\n", "store.blobs": ""},
    "upward, the module itself": {"model": "import sidecar.fs.read\n"},
    "upward, inside a function": {"store.x": "def f():\n    from sidecar.cli.main import main\n"},
    "upward, by a relative name": {"fs.read": "from ..store import blobs\n", "store.blobs": ""},
    "upward, from the package": {"fs.read": "from sidecar import attach\n", "attach": ""},
    "upward, a pure room to the disk": {"rewind.plan": "from sidecar.fs.read import read\n", "fs.read": ""},
    "upward, a pure room to its own verb's apply": {
        "rewind.plan": "from sidecar.rewind.apply import x\n",
        "rewind.apply": "",
    },
    "upward, tables to load": {"policy.tables": "from sidecar.policy import load\n", "policy.load": ""},
    "sideways, in one row": {"agents.x": "from sidecar.watch import inotify\n", "watch.inotify": ""},
    "sideways, disk to policy files": {"fs.read": "from sidecar.policy import load\n", "policy.load": ""},
    "one verb to another": {"rewind.apply": "from sidecar.capture.apply import x\n", "capture.apply": ""},
    "one verb to another's plan": {"rewind.apply": "from sidecar.capture import ignore\n", "capture.ignore": ""},
    "the store to a verb's pure room": {"store.x": "from sidecar.capture.ignore import x\n", "capture.ignore": ""},
    "an agent to a verb's pure room": {"agents.x": "from sidecar.capture.ignore import x\n", "capture.ignore": ""},
    "os in a pure room": {"sweep.plan": "import os.path\n"},
    "time in a pure room": {"watch.settle": "from time import monotonic\n"},
    "pathlib in a pure room": {"transcript.graph": "from pathlib import Path\n"},
    "watchdog in a pure room": {"capture.place": "import watchdog.events\n"},
    "the disk in a pure room": {"capture.gitignore": "open('x')\n"},
    "a package without a row": {"helpers.x": ""},
    "a print": {"fs.read": "print(1)\n"},
    "a bare except": {"fs.read": "try:\n    f()\nexcept:\n    raise\n"},
    "everything swallowed": {"fs.read": "try:\n    f()\nexcept Exception:\n    pass\n"},
    "everything swallowed, in a tuple": {
        "fs.read": "for x in y:\n    try:\n        f()\n    except (OSError, Exception):\n        continue\n"
    },
    "everything suppressed": {"fs.read": "with contextlib.suppress(BaseException):\n    f()\n"},
    "a module too long": {"fs.read": "x = 1\n" * 401},
}
ALLOWED = {
    "downward": {
        "cli.x": "from sidecar.attach import loop\nfrom sidecar.model import Stat\n",
        "attach.loop": "",
        "model": "",
    },
    "its own package": {
        "rewind.apply": "from sidecar.rewind.plan import x\nfrom sidecar.fs import read\n",
        "rewind.plan": "",
    },
    "composers meet verbs": {"attach.x": "from sidecar.capture.ignore import x\nfrom sidecar.rewind.apply import y\n"},
    "a room not made yet": {"attach.x": "from sidecar.sweep.plan import x\n"},
    "the version": {"store.x": "from sidecar import __version__\n"},
    "cli prints, and may name a room diff": {"cli.diff": "import os\nprint(1)\n"},
    "cleaning up": {"fs.read": "try:\n    f()\nexcept BaseException:\n    g()\n    raise\n"},
    "an error that is meant": {"fs.read": "try:\n    f()\nexcept FileNotFoundError:\n    pass\n"},
}


@pytest.mark.parametrize("sources", PLANTED.values(), ids=PLANTED)
def test_a_planted_fault_is_found(sources: dict[str, str]) -> None:
    assert len(list(violations(sources))) >= 1


@pytest.mark.parametrize("sources", ALLOWED.values(), ids=ALLOWED)
def test_what_the_design_allows_passes(sources: dict[str, str]) -> None:
    assert list(violations(sources)) == []
