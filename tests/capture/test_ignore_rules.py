"""What is captured and what is not, rule by rule; git's own meaning is compared in `test_ignore_fuzz`."""

import os
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.capture.gitignore import parse_patterns
from sidecar.capture.ignore import IgnoreRules, OuterFile, Verdict, excluded_within, is_rule_file, outer_files
from sidecar.policy import load

CAPTURED, NEVER = Verdict.CAPTURED, Verdict.NEVER
FOLDER, FILE = Verdict.IGNORED_FOLDER, Verdict.IGNORED_FILE


class Tree(dict[bytes, bytes]):
    """The ignore files of a workspace, and which of them were asked for."""

    def __init__(self, files: dict[bytes, bytes]) -> None:
        super().__init__(files)
        self.asked: list[bytes] = []

    def read(self, path: bytes) -> bytes | None:
        self.asked.append(path)
        return self.get(path)


def rules(files: dict[bytes, bytes] | Tree | None = None, **parts: object) -> IgnoreRules:
    tree = files if isinstance(files, Tree) else Tree(files or {})
    return IgnoreRules(load.ignore_policy(), tree.read, parts.pop("excluded", ()), **parts)  # type: ignore[arg-type]


def file(of: IgnoreRules, path: bytes) -> Verdict:
    return of.verdict(path, is_directory=False)


def folder(of: IgnoreRules, path: bytes) -> Verdict:
    return of.verdict(path, is_directory=True)


def test_a_repository_is_never_captured_at_any_depth_and_no_rule_brings_it_back() -> None:
    of = rules({b".gitignore": b"!.git\n!.git/\n!*\n"})
    assert folder(of, b".git") is NEVER
    assert file(of, b"module/.git") is NEVER
    assert file(of, b".git/objects/ab/cd") is NEVER
    assert file(of, b"a/b/.git/HEAD") is NEVER
    assert file(of, b".gitignore") is CAPTURED
    assert file(of, b".github/workflows/ci.yml") is CAPTURED


def test_our_own_staging_is_never_captured() -> None:
    assert folder(rules(), b".sidecar-" + b"0" * 32) is NEVER
    assert file(rules(), b"src/.sidecar-" + b"0" * 32 + b"/1") is NEVER


def test_the_agents_places_are_never_captured_but_a_projects_own_settings_are() -> None:
    excluded = excluded_within(b"/home/me/w", [b"/home/me/w/.config/agent/", b"/home/me/.claude"])
    assert excluded == {b".config/agent", b"/home/me/.claude"}
    of = rules({b".gitignore": b"!*\n"}, excluded=excluded)
    assert folder(of, b".config/agent") is NEVER
    assert file(of, b".config/agent/projects/s.jsonl") is NEVER
    assert file(of, b".config/agent2/notes") is CAPTURED
    assert file(of, b".claude/settings.json") is CAPTURED
    assert file(of, b"/home/me/.claude/settings.json") is NEVER
    assert file(of, b"/home/me/.claude") is NEVER
    assert file(of, b"/home/me/.claude-notes.md") is CAPTURED


def test_an_excluded_place_that_is_the_root_leaves_nothing_and_one_above_it_means_nothing() -> None:
    of = rules(excluded=excluded_within(b"/home/me/.agent", [b"/home/me/.agent"]))
    assert folder(of, b"") is NEVER
    assert file(of, b"projects/x") is NEVER
    of = rules(excluded=excluded_within(b"/home/me/.agent/worktrees/a", [b"/home/me/.agent"]))
    assert folder(of, b"") is CAPTURED
    assert file(of, b"x") is CAPTURED


@pytest.mark.parametrize("place", [b"/etc/ssl/server.pem", b"/h/.ssh/config", b"/h/.netrc", b"/h/p/.env", b"/h/ID_RSA"])
def test_what_looks_like_a_credential_is_not_followed_outside(place: bytes) -> None:
    assert file(rules(), place) is NEVER


def test_other_files_outside_are_followed() -> None:
    for place in (b"/h/notes.md", b"/h/other/src/tokenizer.py", b"/h/other/environment.yml", b"/h/secretary.txt"):
        assert file(rules(), place) is CAPTURED
    assert file(rules(), b"/h/other/.git/config") is NEVER


def test_credentials_inside_are_captured_unless_the_policy_says_otherwise() -> None:
    assert file(rules(), b"app/.env") is CAPTURED
    shipped = load.ignore_policy()
    strict = replace(shipped, credentials=replace(shipped.credentials, inside=True))
    of = IgnoreRules(strict, lambda _: None, ())
    assert file(of, b"app/.env") is NEVER
    assert folder(of, b"app/.env") is CAPTURED  # a folder by that name is a virtual environment
    assert file(of, b"app/main.py") is CAPTURED


def test_what_tools_make_again_is_pruned_without_any_ignore_file() -> None:
    assert folder(rules(), b"web/node_modules") is FOLDER
    assert file(rules(), b"web/node_modules/x/index.js") is FOLDER
    assert file(rules(), b"node_modules") is CAPTURED  # a file, or a link, is no folder
    for kept in (b"venv", b".venv", b"target", b"build", b"dist", b"vendor", b".claude", b"env", b"out"):
        assert folder(rules(), kept) is CAPTURED, kept


def test_a_project_keeps_a_pruned_folder_by_naming_it_and_not_by_an_allow_list() -> None:
    assert folder(rules({b".gitignore": b"!node_modules/\n"}), b"node_modules") is CAPTURED
    assert folder(rules({b".gitignore": b"!/web/node_modules\n"}), b"web/node_modules") is CAPTURED
    assert folder(rules({b".gitignore": b"*\n!*/\n!*.py\n"}), b"node_modules") is FOLDER
    assert file(rules({b".gitignore": b"*\n!*/\n!*.py\n"}), b"src/a.py") is CAPTURED


def test_a_file_pattern_and_a_folder_pattern_are_told_apart() -> None:
    of = rules({b".gitignore": b"*.log\nbuild/\n/out/*\n"})
    assert file(of, b"a/x.log") is FILE
    assert file(of, b"build/x") is FOLDER
    assert file(of, b"build/deep/er/x") is FOLDER
    assert file(of, b"build") is CAPTURED
    assert file(of, b"out/x") is FILE
    assert folder(of, b"out/x") is FOLDER


def test_nothing_inside_an_ignored_folder_can_be_brought_back_and_its_rules_are_not_read() -> None:
    tree = Tree({b".gitignore": b"a/\n!a/keep\n", b"a/.gitignore": b"!keep\n"})
    assert file(rules(tree), b"a/keep") is FOLDER
    assert b"a/.gitignore" not in tree.asked


def test_the_deeper_ignore_file_wins_and_the_repositorys_own_list_is_weakest() -> None:
    tree = {
        b".git/HEAD": b"ref: x",
        b".git/info/exclude": b"*.tmp\n*.o\n",
        b".gitignore": b"!*.o\n",
        b"a/.gitignore": b"!x.tmp",
    }
    of = rules(tree)
    assert file(of, b"x.tmp") is FILE
    assert file(of, b"a/x.tmp") is CAPTURED
    assert file(of, b"a/y.tmp") is FILE
    assert file(of, b"x.o") is CAPTURED


def test_ignore_files_count_without_a_repository() -> None:
    assert file(rules({b".gitignore": b"*.log\n"}), b"x.log") is FILE


@pytest.mark.parametrize("sign", [{b"be/.git/HEAD": b"ref: x"}, {b"be/.git": b"gitdir: ../.git/modules/be\n"}])
def test_a_nested_repository_begins_a_new_scope_and_is_captured(sign: dict[bytes, bytes]) -> None:
    of = rules({b".gitignore": b"*.log\n/be/x\n", **sign, b"be/.gitignore": b"*.tmp\n"})
    assert file(of, b"be/x.log") is CAPTURED
    assert file(of, b"be/x") is CAPTURED
    assert file(of, b"be/sub/x.tmp") is FILE
    assert file(of, b"x.log") is FILE
    assert file(of, b"be/.git") is NEVER


def test_a_nested_repository_has_its_own_exclude_list_and_can_be_ignored_as_a_whole() -> None:
    of = rules({b"be/.git/HEAD": b"ref: x", b"be/.git/info/exclude": b"*.tmp\n"})
    assert file(of, b"be/sub/x.tmp") is FILE
    assert file(of, b"x.tmp") is CAPTURED
    assert file(rules({b".gitignore": b"be/\n", b"be/.git/HEAD": b"ref: x"}), b"be/src") is FOLDER


def test_a_file_called_git_that_is_no_link_to_a_repository_begins_no_scope() -> None:
    assert file(rules({b".gitignore": b"*.log\n", b"be/.git": b"notes"}), b"be/x.log") is FILE


def test_ignore_files_are_read_once_until_one_changes() -> None:
    tree = Tree({b".gitignore": b"*.log\n", b"src/.gitignore": b"a\n"})
    of = rules(tree)
    assert file(of, b"src/a") is FILE
    before = len(tree.asked)
    assert file(of, b"src/b") is CAPTURED
    assert len(tree.asked) == before
    tree[b"src/.gitignore"] = b"b\n"
    assert of.forget(b"src/.gitignore") == b"src"
    assert file(of, b"src/a") is CAPTURED
    assert file(of, b"src/b") is FILE
    assert b".gitignore" not in tree.asked[before:]  # the root's was not forgotten


def test_a_listing_saves_asking_for_what_is_not_there() -> None:
    tree = Tree({b".gitignore": b"*.log\n", b"be/.git/HEAD": b"ref: x", b"src/.gitignore": b"a\n"})
    of = rules(tree)
    of.saw(b"", [b".gitignore", b"be", b"src", b"plain"])
    of.saw(b"plain", [b"x.log"])
    of.saw(b"be", [b".git", b"x.log"])
    of.saw(b"src", [b".gitignore"])
    assert file(of, b"plain/x.log") is FILE
    assert tree.asked == [b".gitignore"]
    assert file(of, b"be/x.log") is CAPTURED
    assert file(of, b"src/a") is FILE
    assert tree.asked[1:] == [b"be/.git/HEAD", b"be/.git/info/exclude", b"src/.gitignore"]


def test_what_was_listed_is_forgotten_with_the_rest() -> None:
    tree = Tree({})
    of = rules(tree)
    of.saw(b"src", [b"a"])
    tree[b"src/.gitignore"] = b"a\n"
    of.forget(b"src/.gitignore")
    assert file(of, b"src/a") is FILE


def test_a_change_at_the_root_is_felt_everywhere() -> None:
    tree = Tree({b".gitignore": b"*.log\n"})
    of = rules(tree)
    assert file(of, b"a/b/x.log") is FILE
    del tree[b".gitignore"]
    assert of.forget(b".gitignore") == b""
    assert file(of, b"a/b/x.log") is CAPTURED


def test_forget_names_the_folder_to_judge_again() -> None:
    of = rules()
    assert of.forget(b"be/.git") == b"be"
    assert of.forget(b"be/.git/info/exclude") == b"be"
    assert of.forget(b".git/info/exclude") == b""
    assert of.forget(b"moved/folder") == b"moved/folder"


def test_a_moved_folder_is_read_anew() -> None:
    tree = Tree({b"a/b/.gitignore": b"x\n"})
    of = rules(tree)
    assert file(of, b"a/b/c/x") is FILE
    tree.clear()
    of.forget(b"a")
    assert file(of, b"a/b/c/x") is CAPTURED


def test_which_changes_must_be_heard_of() -> None:
    for path in (b".gitignore", b"a/.gitignore", b".git", b"a/.git", b".git/info/exclude"):
        assert is_rule_file(path), path
    for path in (b"gitignore", b"a.gitignore", b"a/x.git", b".git/HEAD", b"info/exclude", b""):
        assert not is_rule_file(path), path


def test_a_workspace_inside_a_repository_hears_the_rules_above_it() -> None:
    files = {
        b"/r/.git/HEAD": b"ref: x",
        b"/r/.git/info/exclude": b"*.tmp\n",
        b"/r/.gitignore": b"*.log\n/packages/a/out/\n/out2/\n",
        b"/r/packages/.gitignore": b"!keep.log\n/a/only-here\n",
        b"/.gitignore": b"*\n",
    }
    outer = outer_files(b"/r/packages/a", files.get)
    assert [(o.below, o.content[:5]) for o in outer] == [
        (b"packages/a", b"*.tmp"),
        (b"packages/a", b"*.log"),
        (b"a", b"!keep"),
    ]
    of = rules({b"src/.gitignore": b"!b.log\n"}, outer=outer)
    assert file(of, b"x.tmp") is FILE
    assert file(of, b"src/a.log") is FILE
    assert file(of, b"src/b.log") is CAPTURED
    assert file(of, b"keep.log") is CAPTURED
    assert folder(of, b"out") is FOLDER
    assert folder(of, b"out2") is CAPTURED
    assert file(of, b"only-here") is FILE


def test_no_rules_come_from_above_a_repository_or_from_outside_any() -> None:
    assert outer_files(b"/r", {b"/r/.git/HEAD": b"ref: x", b"/.gitignore": b"*"}.get) == ()
    assert outer_files(b"/r", {b"/r/.git": b"gitdir: /x", b"/.gitignore": b"*"}.get) == ()
    assert outer_files(b"/r/a", {b"/r/.gitignore": b"*"}.get) == ()
    assert outer_files(b"/", {b"/.gitignore": b"*"}.get) == ()


@pytest.mark.parametrize("pattern", [b"scratch/", b"/scratch/a", b"a/", b"*", b"scratch/*"])
def test_whoever_works_in_an_ignored_folder_wants_it_kept(pattern: bytes) -> None:
    of = rules(outer=[OuterFile(b"scratch/a", pattern + b"\n*.log\n")])
    assert file(of, b"notes.md") is CAPTURED
    assert file(of, b"x.log") is CAPTURED


def test_a_very_deep_path_is_judged() -> None:
    path = b"/".join([b"d"] * 2000)
    assert folder(rules({b".gitignore": b"x\n"}), path) is CAPTURED
    assert file(rules({b"d/.gitignore": b"/d/d/d/\n"}), path + b"/f") is FOLDER


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        (b"a*" * 60 + b"b", b"a" * 250),
        (b"**/a*/" * 30 + b"b", b"aaaa/" * 600 + b"c"),
        (b"**/" * 40 + b"x", b"a/" * 1500 + b"y"),
        (b"[a-z]*" * 50 + b"1", b"a" * 255),
        (b"a?*" * 40 + b"b", b"a" * 255),
    ],
)
def test_no_pattern_takes_long(pattern: bytes, path: bytes) -> None:
    began = time.perf_counter()
    assert parse_patterns(pattern).last_match(path, is_directory=False) is None
    assert time.perf_counter() - began < 1


def test_stars_after_a_literal_do_not_cross_a_slash() -> None:
    """Old versions of git crossed it, against their manual: the random comparison leaves this case out."""
    patterns = parse_patterns(b"ab**/c\n")
    assert patterns.last_match(b"abx/c", is_directory=False) is not None
    assert patterns.last_match(b"abx/y/c", is_directory=False) is None


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle")
def test_a_linked_ignore_file_is_for_the_reader_to_refuse_as_git_does(tmp_path: Path) -> None:
    """The oracle's side of the rule that `read` gives None for a link."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "rules").write_text("*.log\n")
    (tmp_path / ".gitignore").symlink_to("rules")
    (tmp_path / "x.log").touch()
    asked = subprocess.run(["git", "check-ignore", "x.log"], cwd=tmp_path, check=False, capture_output=True)
    assert asked.returncode == 1
    assert os.readlink(tmp_path / ".gitignore") == "rules"
