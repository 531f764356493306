"""C21, C22: any bytes, any mode, any name come back as they were."""

import json
import os
import random
import subprocess

import pytest

from tests.builders.stage import Stage

RANDOM = random.Random(21)

CONTENTS: dict[str, tuple[bytes, int]] = {
    "random.bin": (RANDOM.randbytes(4096), 0o644),
    "incompressible.bin": (RANDOM.randbytes(300_001), 0o644),
    "compressible.txt": (b"the same line again and again\n" * 20_000, 0o644),
    "utf16.txt": ("\ufeffgrüße\r\n".encode("utf-16-le"), 0o644),
    "utf16be.txt": ("\ufeffgrüße\n".encode("utf-16-be"), 0o664),
    "bom.txt": (b"\xef\xbb\xbfwith a mark\n", 0o600),
    "latin1.txt": ("grüße\n".encode("latin-1"), 0o640),
    "crlf.txt": (b"one\r\ntwo\r\n", 0o644),
    "mixed.txt": (b"one\r\ntwo\nthree\rfour\n\r", 0o644),
    "no-final-newline.txt": (b"last line", 0o644),
    "empty.txt": (b"", 0o644),
    "one-newline.txt": (b"\n", 0o644),
    "nul.bin": (b"\0", 0o644),
    "zeros.bin": (b"\0" * 1_000_000, 0o644),
    "run.sh": (b"#!/bin/sh\n", 0o755),
    "read-only.txt": (b"read only\n", 0o444),
    "owner-only.txt": (b"private\n", 0o400),
    "all.txt": (b"for all\n", 0o777),
    "setuid.bin": (b"\x7fELF", 0o4755),
    "setgid.bin": (b"\x7fELF", 0o2711),
    "sticky.bin": (b"sticky", 0o1644),
}


def rewrite(path: str, content: bytes) -> None:
    """Put other bytes and another mode in place of what is there."""
    os.chmod(path, 0o600)
    with open(path, "wb") as file:
        file.write(content[::-1] + b"changed\n")
    os.chmod(path, 0o604)


def append(path: str, content: bytes) -> None:
    """Write behind what is there, and decode and encode it as a careless tool does."""
    os.chmod(path, 0o600)
    with open(path, "ab") as file:
        file.write(content[:64].decode("utf-8", "replace").replace("\r\n", "\n").encode() + b"?")


def replace(path: str, content: bytes) -> None:
    """Rename another file over it."""
    with open(path + ".new", "wb") as file:
        file.write(content + b"!")
    os.replace(path + ".new", path)


def truncate(path: str, content: bytes) -> None:
    """Cut it short, or make it longer where it is empty."""
    os.chmod(path, 0o600)
    os.truncate(path, len(content) // 2 if content else 3)


def remove(path: str, _content: bytes) -> None:
    os.unlink(path)


def only_mode(path: str, _content: bytes) -> None:
    os.chmod(path, 0o611)


@pytest.mark.parametrize("change", [rewrite, append, replace, truncate, remove, only_mode])
def test_case_C21_bytes_and_modes(tmp_path, change):
    stage = Stage(tmp_path)
    for name, (content, mode) in CONTENTS.items():
        stage.write(name, content, mode)
    for name, mode in [("private", 0o700), ("shared", 0o2775), ("sticky", 0o1777)]:
        (stage.project / name).mkdir()
        (stage.project / name).chmod(mode)
    with stage.watching() as watcher:
        first = stage.session.prompt("ruin them")
        watcher.checkpoint(first)
        before = stage.tree()
        for name, (content, _) in CONTENTS.items():
            change(str(stage.project / name), content)
        for name in ("private", "shared", "sticky"):
            (stage.project / name).chmod(0o755)
        stage.session.say()
        second = stage.session.prompt("and?")
        watcher.checkpoint(second)
        after = stage.tree()
        stage.session.say()
        answer = stage.json("rewind", first, "--yes")
        assert stage.tree() == before
        assert set(CONTENTS) | {"private", "shared", "sticky"} == set(answer["restored"])
        assert answer["kept"] == answer["failed"] == answer["skippedLinks"] == []
        stage.json("undo", "--yes")
        assert stage.tree() == after
        command = stage.command("show", f"{first}:mixed.txt")
        shown = subprocess.run(command, cwd=stage.project, env=stage.environ, capture_output=True, check=True)
        assert shown.stdout == CONTENTS["mixed.txt"][0]


NAMES = [
    "日本語.txt".encode(),
    "中文 文件.md".encode(),
    "caf\u00e9.txt".encode(),  # composed (NFC)
    "cafe\u0301.txt".encode(),  # decomposed (NFD)
    "\U0001f600.txt".encode(),
    "\u202egnp.exe".encode(),  # right to left
    "a\u200bb".encode(),  # a space of no width
    b"new\nline",
    b"tab\there",
    b"return\rhere",
    b"escape\x1b[31mred",
    b"bell\x07",
    b"single'quote",
    b'double"quote',
    b"back\\slash",
    b"-dash",
    b"--help",
    b"trailing space ",
    b" leading space",
    b"trailing dot.",
    b"#hash",
    b"!bang",
    b"*?[glob]",
    b"$(touch bad) `touch bad` ;|&",
    b"{brace}%s%00",
    b"a:b",
    b"~",
    b"...",
    b"\xff\xfe\xfa",
    b"half \xe6\x97 character",
    b"\xed\xb3\xbf",  # a lone surrogate, written out
    b"\x7f",
    b"x" * 255,
    "é".encode() * 127,
]


def path_of(name: bytes, number: int) -> bytes:
    """Put every third file into a folder of the same strange kind."""
    return name if number % 3 else NAMES[number] + b".d/" + name if len(name) < 250 else b"folder/" + name


PATHS = [path_of(name, number) for number, name in enumerate(NAMES)]


def as_json(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


@pytest.fixture
def named(tmp_path) -> Stage:
    """Give a stage with a file of every name, where the file system takes it."""
    stage = Stage(tmp_path)
    for path in PATHS:
        stage.write(path, b"old " + path)
    return stage


def test_case_C22_every_name_is_restored_removed_and_made_again(named):
    stage = named
    with stage.watching() as watcher:
        first = stage.session.prompt("edit all")
        watcher.checkpoint(first)
        before = stage.tree()
        assert {path for path, what in before.items() if what[0] == "file"} == set(PATHS)
        for number, path in enumerate(PATHS):
            if number % 2:
                stage.write(path, b"new")
            else:
                os.unlink(os.path.join(os.fsencode(stage.project), path))
            stage.write(b"made/" + NAMES[number], b"made")
        stage.session.say()
        second = stage.session.prompt("next")
        watcher.checkpoint(second)
        after = stage.tree()
        stage.session.say()

        shown = {file["path"]: file["change"] for file in stage.json("show", second)["files"]}
        for number, path in enumerate(PATHS):
            assert shown[as_json(path)] == ("changed" if number % 2 else "removed")
            assert shown[as_json(b"made/" + NAMES[number])] == "created"

        answer = stage.json("rewind", first, "--yes")
        assert stage.tree() == before
        files = {os.fsencode(path) for path in answer["filesChanged"]}
        assert files == set(PATHS) | {b"made/" + name for name in NAMES}
        assert answer["kept"] == answer["failed"] == []
        stage.json("undo", "--yes")
        assert stage.tree() == after
        here = stage.tree()
        assert not [path for path in here if path == b"bad"], "no name is ever given to a shell"


def test_case_C22_json_carries_the_raw_bytes_and_text_no_control_characters(named):
    stage = named
    with stage.watching() as watcher:
        first = stage.session.prompt("edit all")
        watcher.checkpoint(first)
        for path in PATHS:
            stage.write(path, b"new")
        stage.session.say()
        raw = stage.run("rewind", first, "--dry-run", "--json").out
        assert raw.isascii()
        assert "\\udcff\\udcfe\\udcfa" in raw
        answer = json.loads(raw)
        assert sorted(os.fsencode(path) for path in answer["restored"]) == sorted(PATHS)
        for verb in (["rewind", first, "--dry-run"], ["diff", first, "--patch"], ["rewind", first, "--yes"]):
            text = stage.run(*verb).out
            assert not [c for c in text if not (c.isprintable() or c in "\n\t")], verb
            assert "\x1b" not in text
        lines = stage.run("rewind", first, "--dry-run").out
        assert lines.count("\n") < len(PATHS) + 20, "a newline in a name makes no line of its own"


def test_case_C22_one_path_of_any_name_alone(named):
    stage = named
    with stage.watching() as watcher:
        first = stage.session.prompt("edit all")
        watcher.checkpoint(first)
        for path in PATHS:
            stage.write(path, b"new")
        stage.session.say()
        names = ("cafe\u0301.txt".encode(), b"new\nline", b"--help", b"\xff\xfe\xfa", b"trailing space ", b"*?[glob]")
        chosen = [path for path in PATHS if path.rpartition(b"/")[2] in names]
        assert len(chosen) == len(names)
        for path in chosen:
            answer = stage.json("rewind", first, "--yes", "--json", "--", os.fsdecode(path))
            assert [os.fsencode(one) for one in answer["restored"]] == [path]
            assert stage.tree()[path][2] == b"old " + path
        left = {path for path, what in stage.tree().items() if what[0] == "file" and what[2] == b"new"}
        assert left == set(PATHS) - set(chosen)


def test_case_C22_the_two_normal_forms_are_two_files(tmp_path):
    stage = Stage(tmp_path)
    composed, decomposed = "caf\u00e9".encode(), "cafe\u0301".encode()
    stage.write(composed, "composed\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("add the other form")
        watcher.checkpoint(first)
        stage.write(decomposed, "decomposed\n")
        if len(os.listdir(stage.project)) == 1:
            pytest.skip("this file system keeps one form only")
        stage.session.say()
        answer = stage.json("rewind", first, "--yes")
        assert [os.fsencode(path) for path in answer["removed"]] == [decomposed]
        assert stage.tree()[composed][2] == b"composed\n"


def test_case_C22_the_locale_changes_nothing(named):
    """A terminal without UTF-8: the same paths, byte for byte."""
    stage = named
    with stage.watching() as watcher:
        first = stage.session.prompt("edit all")
        watcher.checkpoint(first)
        before = stage.tree()
        for path in PATHS:
            stage.write(path, b"new")
        stage.session.say()
        environ = {"LC_ALL": "C", "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
        text = stage.run("rewind", first, "--dry-run", environ=environ)
        assert text.code == 0, text.err
        answer = stage.run("rewind", first, "--yes", "--json", environ=environ)
        assert answer.code == 0, answer.err
        restored = {path.encode("utf-8", "surrogateescape") for path in answer.json["restored"]}
        assert restored == set(PATHS)
        assert stage.tree() == before
