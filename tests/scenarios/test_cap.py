"""At most a hundred checkpoints a session: the oldest goes, with all that only it kept, and never comes back."""

import os

from tests.builders.probe import content_files, disk_bytes, opened, settle
from tests.builders.stage import Stage

BIG, SMALL = 200_000, 20_000  # one is a file beside the database, the other lies inside it


def contents(stage: Stage) -> tuple[int, int]:
    """Give the number of content files, and of contents that the database knows."""
    with opened(stage) as database:
        (known,) = database.execute("SELECT count(*) FROM blob").fetchone()
    return len(content_files(stage)), known


def messages_of(stage: Stage) -> list[str]:
    return [one["message"] for one in stage.json("log", "--session", stage.session.session)]


def assert_evicted(stage: Stage, message: str) -> None:
    answer = stage.run("rewind", message, "--yes")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == "No file checkpoint found for this message.\n"
    told = stage.json("rewind", message, "--yes", code=1)
    assert (told["canRewind"], told["reason"], told["code"]) == (False, "evicted", "no-checkpoint")
    assert told["error"] == "No file checkpoint found for this message."
    assert stage.json("show", message, code=1)["code"] == "no-checkpoint"


def play(stage: Stage, watcher, count: int) -> tuple[list[str], list[bytes]]:
    """Send messages; each turn writes new bytes. Gives the messages and what `big.bin` held at each (b"": nothing)."""
    messages, held = [], [b""]
    for number in range(count):
        message = stage.session.prompt(f"message {number}")
        watcher.checkpoint(message)
        messages.append(message)
        held.append(os.urandom(BIG))
        stage.write("big.bin", held[-1])
        stage.write("small.bin", os.urandom(SMALL))
        stage.session.say()
        settle(stage)
    return messages, held


def test_of_130_messages_the_newest_100_remain_and_the_disk_is_given_back(tmp_path):
    stage = Stage(tmp_path)
    stage.write("untouched.txt", "as it was\n")
    with stage.watching() as watcher:
        messages, held = play(stage, watcher, 130)
        watcher.wait("evicted", message=messages[29])
        gone = [event["message"] for event in watcher.events if event["event"] == "evicted"]
        assert gone == messages[:30]
        assert messages_of(stage) == messages[:29:-1]
        assert_evicted(stage, messages[4])

        assert stage.json("diff", "latest")["filesChanged"] == ["big.bin", "small.bin"]
        # One of each for every message that is left, and the present. Not at the end of the session: now.
        files, known = contents(stage)
        assert files == 101
        assert known == 101 * 2 + 1
        assert disk_bytes(stage) < 101 * (BIG + SMALL) * 1.15 + 2_000_000

        check = stage.json("check")
        assert (check["ok"], check["findings"], check["blobs"]) == (True, [], 203)
        assert check["checkpoints"] >= 100

        stage.json("rewind", messages[30], "--yes")
        assert (stage.project / "big.bin").read_bytes() == held[30]
        assert (stage.project / "untouched.txt").read_text() == "as it was\n"
    assert messages_of(stage) == messages[:29:-1]
    assert stage.json("check")["ok"]


def test_a_lower_profile_evicts_and_gives_the_disk_back_and_a_higher_one_brings_nothing_back(tmp_path):
    stage = Stage(tmp_path)
    with stage.watching() as watcher:
        messages, held = play(stage, watcher, 50)
    before = disk_bytes(stage)

    stage.attach_once("--profile", "short")
    assert messages_of(stage) == messages[:29:-1]
    files, known = contents(stage)
    assert (files, known) == (21, 42)
    assert disk_bytes(stage) < before * 0.55
    assert_evicted(stage, messages[29])

    stage.attach_once("--profile", "default")
    assert messages_of(stage) == messages[:29:-1]
    assert_evicted(stage, messages[0])
    assert contents(stage) == (21, 42)
    stage.json("rewind", messages[30], "--yes", "--all")
    assert (stage.project / "big.bin").read_bytes() == held[30]
    assert stage.json("check")["ok"]


def test_sixty_imported_and_fifty_new_are_a_hundred(tmp_path):
    stage = Stage(tmp_path)
    old, held = [], []
    for number in range(60):
        old.append(stage.session.prompt(f"earlier {number}"))
        stage.session.edit("kept.txt", f"{number}\n".encode() * 10_000)
        stage.session.say()
        held.append((stage.project / "kept.txt").read_bytes())
    with stage.watching() as watcher:
        watcher.wait("attached")
        assert messages_of(stage) == old[::-1]
        new, _ = play(stage, watcher, 50)
        watcher.wait("evicted", message=old[9])
        listed = stage.json("log", "--session", stage.session.session)
        assert [one["message"] for one in listed] == [*new[::-1], *old[:9:-1]]
        assert [one["kind"] for one in listed] == ["message"] * 50 + ["imported"] * 50
        assert [event["message"] for event in watcher.events if event["event"] == "evicted"] == old[:10]
        assert_evicted(stage, old[9])
        stage.json("rewind", old[10], "--yes", "--all")
        assert (stage.project / "kept.txt").read_bytes() == held[9]
        stage.json("undo", "--yes")
        assert (stage.project / "kept.txt").read_bytes() == held[59]
        assert stage.json("check")["ok"]

    stage.attach_once("--profile", "short")
    assert messages_of(stage) == new[:29:-1]
    assert_evicted(stage, old[59])
    stage.attach_once("--profile", "long")
    assert messages_of(stage) == new[:29:-1]
    assert stage.json("check")["ok"]


def test_pins_stand_beside_the_cap_and_marks_count(tmp_path):
    stage = Stage(tmp_path)
    with stage.watching("watch", "--profile", "short") as watcher:
        first = stage.session.prompt("the one to keep")
        watcher.checkpoint(first)
        assert stage.json("pin", first, "good") == {"message": first, "name": "good"}
        stage.session.say()
        messages, _ = play(stage, watcher, 20)
        assert messages_of(stage) == [*messages[::-1], first]

        mark = stage.json("mark", "by hand\nsecond line")
        assert mark["name"] == "by hand\nsecond line"
        assert messages_of(stage) == [mark["message"], *messages[:0:-1], first]
        assert_evicted(stage, messages[0])
        kinds = {one["message"]: (one["kind"], one["pin"], one["prompt"]) for one in stage.json("log")}
        assert kinds[mark["message"]] == ("mark", None, "by hand")
        assert kinds[first] == ("message", "good", "the one to keep")
        assert stage.json("show", "good")["message"] == first

        assert stage.json("unpin", "good") == {"message": first, "name": "good"}
        assert messages_of(stage) == [mark["message"], *messages[:0:-1]]
        assert_evicted(stage, first)
        assert stage.json("unpin", "good", code=1)["code"] == "no-checkpoint"
        assert stage.json("check")["ok"]
