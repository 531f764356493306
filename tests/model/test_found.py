"""Histories in which the machine found mistakes, as plain tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model import claims
from tests.model.world import BEFORE_REWINDS, World, pause


@pytest.fixture
def world() -> Iterator[World]:
    opened = World()
    try:
        yield opened
    finally:
        opened.close()


def put(world: World, name: str, content: str) -> None:
    def do() -> None:
        path = Path(world.project, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    world.touch(f"write {name}", do, name.encode())


def begin(world: World) -> None:
    put(world, "a", "one\n")
    put(world, "d/x", "two\n")
    world.message()
    world.enter()
    world.begin()
    pause(30)


def folder_becomes_file(world: World) -> None:
    os.unlink(world.path(b"d/x"))
    os.rmdir(world.path(b"d"))
    Path(world.path(b"d")).write_text("a file now\n")


def test_a_file_in_the_place_of_an_imported_files_directory_goes(world: World) -> None:
    begin(world)
    first = world.sent[0]
    world.touch("edit", lambda: world.session.edit(world.path(b"d/x"), b"by the tool\n"), b"d/x")
    world.touch("swap", lambda: folder_becomes_file(world), b"d", b"d/x")
    world.step()
    found = world.checkpoint(first.uuid)
    assert found is not None and not found.timeline
    went = world.rewind(found, everything=True)
    assert went.done.outcome.failed == []
    assert went.after[b"d/x"] == ("file", 0o644, b"two\n")
    back = world.undo()
    assert back is not None
    claims.same_as_before(went, back)


def test_a_rewind_leaves_no_more_before_rewind_states_than_are_kept(world: World) -> None:
    begin(world)
    sent = world.message()
    for turn in range(BEFORE_REWINDS + 2):
        pause(15)
        put(world, "a", f"turn {turn}\n")
        world.step()
        found = world.checkpoint(sent.uuid)
        assert found is not None
        assert world.rewind(found).done.undo is not None
        claims.check_store(world)


def test_an_undo_that_finds_nothing_to_do_is_done(world: World) -> None:
    begin(world)
    first = world.message()
    pause(30)
    put(world, "a", "in the first turn\n")
    world.step()
    second = world.message()
    pause(30)
    put(world, "a", "in the second turn\n")
    world.step()
    for sent in (second, first):
        found = world.checkpoint(sent.uuid)
        assert found is not None
        world.rewind(found)
    assert world.tree()[b"a"][2] == b"one\n"
    put(world, "a", "in the first turn\n")  # by hand, what the first undo would do
    world.step()
    assert (went := world.undo()) is not None and went.done.undo is None
    assert (went := world.undo()) is not None and went.done.undo is not None
    assert world.tree()[b"a"][2] == b"in the second turn\n"


def test_what_was_in_a_folder_that_became_a_file_is_gone_since_then(world: World) -> None:
    begin(world)
    world.touch("swap", lambda: folder_becomes_file(world), b"d", b"d/x")
    pause(30)
    world.send_late()
    pause(30)
    world.step()
    world.tell_late()
    world.step()
    claims.check_states(world)


def test_a_message_read_after_its_tree_was_says_nothing_of_what_changed_with_it(world: World) -> None:
    begin(world)
    for turn in range(4):
        with world.outage():
            world.message()
            put(world, f"made-{turn}", "right after the message\n")
        claims.check_states(world)


def test_a_removal_before_a_late_record_may_be_after_its_message(world: World) -> None:
    begin(world)
    for turn in range(4):
        put(world, f"made-{turn}", "new\n")
        world.step()
        pause(30)
        world.send_late()
        world.touch("delete", lambda: os.unlink(world.path(f"made-{turn}".encode())), f"made-{turn}".encode())  # noqa: B023
        pause(40)
        world.tell_late()
        world.step()
        claims.check_states(world)


def test_a_change_with_a_late_message_is_not_before_it(world: World) -> None:
    begin(world)
    for turn in range(6):
        world.send_late()
        put(world, "a", f"right after the message {turn}\n")
        pause(40)
        world.tell_late()
        world.step()
        claims.check_states(world)


def test_a_path_below_what_became_a_file_is_refused_at_once(world: World) -> None:
    begin(world)
    sent = world.message()
    pause(30)
    world.touch("swap", lambda: folder_becomes_file(world), b"d", b"d/x")
    world.step()
    found = world.checkpoint(sent.uuid)
    assert found is not None
    began = world.now()
    went = world.rewind(found, only=(b"d/x",))
    assert [path for path, _ in went.done.outcome.failed] == [b"d/x"]
    assert went.after == went.before
    assert world.now() - began < 2_000_000_000


def test_the_turn_of_a_late_message_ends_where_the_next_began(world: World) -> None:
    begin(world)
    world.step()
    world.send_late()
    pause(30)
    world.message()
    pause(30)
    world.end_turn()
    world.step()
    world.tell_late()
    world.step()
    pause(30)
    put(world, "a", "by hand\n")
    pause(30)
    world.step()
    found = world.checkpoint(world.sent[-1].uuid)
    assert found is not None
    went = world.rewind(found)
    assert went.after[b"a"][2] == b"by hand\n"
    claims.check_not_ours(world, world.sent[-1], went)


def test_the_turn_of_a_late_message_ends_where_the_agent_said_so_before_it_was_told(world: World) -> None:
    begin(world)
    world.step()
    world.send_late()
    pause(30)
    world.step()
    put(world, "a", "in the turn\n")
    world.end_turn()
    world.step()
    pause(30)
    world.tell_late()
    world.step()
    put(world, "d/x", "by hand\n")
    pause(30)
    world.step()
    found = world.checkpoint(world.sent[-1].uuid)
    assert found is not None
    went = world.rewind(found)
    assert went.after[b"d/x"][2] == b"by hand\n"
    assert went.after[b"a"][2] == b"one\n", (went.done.outcome, world.log)


def test_a_copy_by_links_makes_no_earlier_checkpoint_unsure(world: World) -> None:
    begin(world)
    world.mark()
    pause(30)
    copy = str(world.directory / "copy")
    world.touch("cp -al", lambda: os.link(world.path(b"a"), copy), b"a")
    pause(15)
    world.touch("rm", lambda: os.unlink(copy), b"a")
    pause(30)
    world.message()
    world.step()
    claims.check_states(world)
