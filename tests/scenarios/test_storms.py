"""More happens than can be looked at one by one: what is told of a message is right all the same, or flagged."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.policy.load import watch_policy
from tests.builders.limits import limited
from tests.builders.probe import opened, settle
from tests.builders.stage import PATIENCE_S, Json, Stage, Watcher
from tests.builders.truth import Truth, say


def warnings(watcher: Watcher, code: str) -> list[str]:
    return [one["text"] for one in watcher.events if one["event"] == "warning" and one["code"] == code]


class Log:
    """A file that somebody appends to all the time, and all that it ever held."""

    def __init__(self, path: Path, pause_s: float) -> None:
        self.path = path
        self.pause_s = pause_s
        self.lines = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stop.wait(self.pause_s):
            with self.path.open("a") as file:
                file.write(f"line {self.lines + 1}\n")
            self.lines += 1

    def __enter__(self) -> "Log":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @staticmethod
    def at(lines: int) -> bytes:
        return "".join(f"line {number + 1}\n" for number in range(lines)).encode()


def rows_written(stage: Stage) -> int:
    """Count the rows that the timeline was ever given."""
    with opened(stage) as database:
        (newest,) = database.execute("SELECT max(id) FROM version").fetchone()
    return int(newest)


@pytest.mark.parametrize("pause_s", [0.005, 0.1], ids=["every-5-ms", "every-100-ms"])
def test_a_log_is_captured_at_policys_rate_and_at_every_message(tmp_path, pause_s):
    stage = Stage(tmp_path)
    stage.write("log.txt", "")
    stage.write("quiet.txt", "never changes\n")
    hot = watch_policy().hot
    spans: dict[str, tuple[int, int]] = {}  # message -> how many lines there were at least and at most
    with stage.watching() as watcher:
        watcher.checkpoint(stage.session.prompt("hello"))
        settle(stage)
        before = rows_written(stage)
        began = time.monotonic()
        with Log(stage.project / "log.txt", pause_s) as log:
            for number in range(5):
                time.sleep(0.6)
                least = log.lines
                message = stage.session.prompt(f"message {number}")
                spans[message] = (least, log.lines + 1)
                watcher.checkpoint(message)
                stage.session.say()
        settle(stage)
        periods = (time.monotonic() - began) * 1000 / hot.period_ms
        # Each capture writes the state and, before it, what is not known: two rows.
        written = rows_written(stage) - before
        # The messages and the question; each of them once more where the rest of its round comes later.
        most = hot.burst + periods + 2 * (len(spans) + 1)
        assert 0 < written <= 2 * most, (written, most, log.lines)
        unsure = 0
        for message, (least, most_lines) in spans.items():
            answer, shown = say(stage, "show", f"{message}:log.txt")
            if answer.code == 0:
                assert shown in [Log.at(n) for n in range(least, most_lines + 1)], (least, most_lines)
            else:
                assert "nobody knows" in answer.err, answer
                unsure += 1
            assert say(stage, "show", f"{message}:quiet.txt")[1] == b"never changes\n"
        assert pause_s < 0.05 or unsure <= 2  # slower than a message's closing: it is known but for an accident
        # And the end of it is known exactly.
        last = stage.session.prompt("after the storm")
        watcher.checkpoint(last)
        assert stage.run("show", f"{last}:log.txt").out.encode() == Log.at(log.lines)
    assert stage.json("check")["ok"]


def test_what_a_hot_path_held_back_is_written_down_when_the_sidecar_stops(tmp_path):
    stage = Stage(tmp_path)
    stage.write("log.txt", "")
    with stage.watching() as watcher:
        watcher.checkpoint(stage.session.prompt("hello"))
        for number in range(40):
            stage.write("log.txt", f"{number}\n")
            time.sleep(0.01)
        assert watcher.stop() == 0
    with opened(stage) as database:
        sizes = "SELECT v.size_bytes FROM version v JOIN path p ON p.id = v.path WHERE p.name = ? AND v.to_at IS NULL"
        assert database.execute(sizes, (b"log.txt",)).fetchall() == [(3,)]


@pytest.mark.parametrize("way", ["folder", "file"])
def test_what_was_held_back_of_a_file_is_not_claimed_when_it_goes(tmp_path, way):
    """Its last bytes nobody read: the row of those before them must not reach to the removal."""
    stage = Stage(tmp_path)
    stage.write("build/log.txt", "0\n")
    with stage.watching() as watcher:
        watcher.checkpoint(stage.session.prompt("hello"))
        for number in range(30):
            stage.write("build/log.txt", f"{number}\n")
            time.sleep(0.01)
        then = time.time_ns()
        time.sleep(0.05)
        if way == "folder":
            os.rename(stage.project / "build", tmp_path / "elsewhere")
        else:
            (stage.project / "build/log.txt").unlink()
        settle(stage)
        with opened(stage) as database:
            rows = database.execute(
                "SELECT v.kind, v.size_bytes FROM version v JOIN path p ON p.id = v.path "
                "WHERE p.name = ? AND v.from_at <= ? AND (v.to_at IS NULL OR v.to_at > ?)",
                (b"build/log.txt", then, then),
            ).fetchall()
        assert rows in ([("unknown", 0)], []), rows
        message = stage.session.prompt("after it")
        watcher.checkpoint(message)
        assert say(stage, "show", f"{message}:build/log.txt")[0].code != 0


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.alone
@pytest.mark.xdist_group("sysctl")
def test_case_C34_a_burst_that_overflows_the_queue_again_and_again(tmp_path):
    """40,000 files with a queue of 64: few looks at the tree, and each file right at the next checkpoint or flagged."""
    stage = Stage(tmp_path)
    for number in range(40):
        stage.write(f"edited-{number}.txt", "before the storm\n")
    for folder in range(200):  # of new ones one event would tell
        (stage.project / f"folder-{folder}").mkdir()
    truth = Truth(stage)
    with limited("max_queued_events", 64), stage.watching("watch", "--profile", "long") as watcher:
        watcher.checkpoint(truth.prompt("hello"))
        began = time.monotonic()
        for folder in range(200):
            if folder % 10 == 0:  # the reader pauses, goes on, and pauses again
                watcher.process.send_signal(signal.SIGCONT)
                time.sleep(0.05)
                watcher.process.send_signal(signal.SIGSTOP)
            top = stage.project / f"folder-{folder}"
            for number in range(200):
                (top / f"{number}.txt").write_text(f"{folder} {number}\n")
            if folder % 5 == 0:
                stage.write(f"edited-{folder // 5}.txt", f"in the storm, {folder}\n")
        watcher.process.send_signal(signal.SIGCONT)
        passed_s = time.monotonic() - began
        message = truth.prompt("after the storm")
        watcher.checkpoint(message)
        assert any("overflow" in text for text in warnings(watcher, "lost"))
        told = stage.json("status")
        # At once, then after 1, 2, 4 ... seconds; and one for each of the two messages and the end.
        assert 1 <= told["rescans"] <= 3 + passed_s.__ceil__().bit_length() + 3
        unsure = truth.prove([message])
        assert len(unsure) <= next(one for one in stage.json("log") if one["message"] == message)["unstable"]
        assert len(unsure) < 400  # what lies long before the message is known: the look was made for it
        # Which bytes the edited files had at the first message was stored before the storm began.
        for number in range(0, 40, 20):
            assert stage.run("show", f"{next(iter(truth.then))}:edited-{number}.txt").out == "before the storm\n"
    assert stage.json("check")["ok"]


def wait_for(stage: Stage, fits: Callable[[Json], bool]) -> Json:
    """Ask for the status until it is as it should be."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        told = stage.json("status")
        if fits(told):
            return told
        assert time.monotonic() < deadline, told


def is_owed(told: Json) -> bool:
    return any("rescan of the whole tree is owed" in text for text in told["warnings"])


@pytest.mark.root
@pytest.mark.alone
@pytest.mark.xdist_group("sysctl")
def test_a_rescan_that_is_owed_is_said_and_done_for_whoever_asks(tmp_path, monkeypatch):
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "watch.toml").write_text("[rescan]\nfirst_pause_ms = 600000\nlongest_pause_s = 600\n")
    monkeypatch.setenv("SIDECAR_POLICIES", str(policies))
    stage = Stage(tmp_path)
    stage.write("f.txt", "v0\n")
    with limited("max_queued_events", 16), stage.watching() as watcher:
        watcher.checkpoint(stage.session.prompt("hello"))

        def lose(content: str) -> None:
            watcher.process.send_signal(signal.SIGSTOP)
            for number in range(40):
                stage.write(f"{number}.txt", content)
            stage.write("f.txt", content)
            watcher.process.send_signal(signal.SIGCONT)

        lose("v1\n")  # the first is made good at once
        told = wait_for(stage, lambda told: told["rescans"] == 1)
        assert not is_owed(told)
        lose("v2\n")
        told = wait_for(stage, is_owed)
        assert told["rescans"] == 1
        assert "1 rescans" in stage.run("status").out
        assert "is owed" in stage.run("status").out
        with opened(stage) as database:  # nothing is claimed meanwhile
            claimed = "SELECT max(end_at) FROM coverage"
            (until,) = database.execute(claimed).fetchone()
            time.sleep(1.2)
            assert database.execute(claimed).fetchone() == (until,)
        # A message waits for no pause: its checkpoint closes over what is there.
        message = stage.session.prompt("in the middle of it")
        watcher.checkpoint(message)
        told = stage.json("status")
        assert (told["rescans"], is_owed(told)) == (2, False)
        assert stage.run("show", f"{message}:f.txt").out == "v2\n"
        # Nor does a rewind.
        lose("v3\n")
        wait_for(stage, is_owed)
        answer = stage.json("rewind", message, "f.txt", "--yes")
        assert (answer["restored"], answer["scanned"]) == (["f.txt"], False)
        assert stage.json("status")["rescans"] == 3
        assert stage.json("undo", "--yes")["failed"] == []
        assert (stage.project / "f.txt").read_text() == "v3\n"
    assert stage.json("check")["ok"]
