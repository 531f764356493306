"""Between two messages an agent changes files by every means; rewinding to either brings every byte and mode back."""

import os
import time

from tests.builders.stage import Stage


def prepare(stage: Stage) -> None:
    stage.write("edited.txt", "one\ntwo\n")
    stage.write("tool.txt", "before\n")
    stage.write("deleted.txt", "gone soon\n", 0o640)
    stage.write("renamed.txt", "name\n")
    stage.write("folder/a.txt", "a\n")
    stage.write("folder/deep/b.txt", "b\n")
    stage.write("turned.txt", "I become a folder\n")
    stage.write("saved.txt", "atomically\n")
    stage.write("run.sh", "#!/bin/sh\n", 0o644)
    stage.write("image.bin", bytes(range(256)) * 16)
    stage.write("crlf.txt", b"one\r\ntwo\r\n")
    stage.write("wide.txt", "grüße\n".encode("utf-16"))
    stage.write("empty.txt", b"")
    stage.write("big.bin", os.urandom(5 * 1024 * 1024))
    stage.write(b"bad\xff\xfename.txt", "bytes\n")
    (stage.project / "hollow").mkdir()


def change(stage: Stage) -> None:
    stage.shell(
        "sed -i s/two/three/ edited.txt; cat > made.txt <<'X'\nnew\nX\nrm deleted.txt; mv renamed.txt other.txt"
    )
    stage.session.edit("tool.txt", b"after\n")
    stage.shell("mv folder moved; rm turned.txt; mkdir -p turned.txt/in; echo x > turned.txt/in/side.txt")
    stage.shell("echo more > saved.tmp; mv saved.tmp saved.txt; chmod 755 run.sh; rmdir hollow")
    stage.write("image.bin", bytes(reversed(range(256))) * 16)
    stage.write("crlf.txt", b"one\r\nthree\r\n")
    stage.write("wide.txt", "adieu\n".encode("utf-16"))
    stage.write("empty.txt", b"no more")
    stage.write("big.bin", os.urandom(5 * 1024 * 1024))
    stage.write(b"bad\xff\xfename.txt", "other bytes\n")
    stage.write("new/folder/with/file.txt", "deep\n")


def test_both_messages_come_back_byte_for_byte(tmp_path):
    stage = Stage(tmp_path)
    prepare(stage)
    with stage.watching() as watcher:
        first = stage.session.prompt("change everything")
        watcher.checkpoint(first)
        before = stage.tree()
        change(stage)
        stage.session.say()
        time.sleep(0.05)  # nobody types within a kernel's tick of the last change; what is then unsure has its own test
        second = stage.session.prompt("and now?")
        watcher.checkpoint(second)
        after = stage.tree()
        stage.session.say()

        answer = stage.json("rewind", first, "--yes")
        assert stage.tree() == before, (answer["kept"], answer["failed"])
        assert answer["kept"] == answer["failed"] == answer["skippedLinks"] == []
        assert "made.txt" in answer["removed"]
        assert "deleted.txt" in answer["restored"]

        answer = stage.json("rewind", second, "--yes")
        assert stage.tree() == after, (answer["kept"], answer["restored"])

        again = stage.json("rewind", second, "--yes")
        assert again["filesChanged"] == again["restored"] == again["removed"] == []
    assert stage.run("check").code == 0
