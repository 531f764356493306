"""What is relied on of watchdog, row by row: a release that changes one of these must fail here and not in silence.

`InotifyFD` is no documented interface, so `pyproject.toml` pins the minor version's upper end and this file says why.
"""

import errno
import inspect
import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from watchdog.events import EVENT_TYPE_CLOSED_NO_WRITE, EVENT_TYPE_OPENED, FileSystemEvent
from watchdog.observers import Observer
from watchdog.observers.inotify_c import (
    CallbackId,
    InotifyConstants,
    InotifyEvent,
    InotifyFD,
    Mask,
    WatchCallback,
    WatchDescriptor,
)

from sidecar.watch import observer
from sidecar.watch.descriptor import MASK_COOKIE, MASK_MODIFY, MASK_TREE

from .conftest import write


class Notes:
    """A callback that keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[InotifyEvent] = []
        self.deleted: list[int] = []
        self.overflows = 0

    def on_event(self, event: InotifyEvent) -> None:
        self.events.append(event)

    def on_watch_deleted(self, wd: WatchDescriptor) -> None:
        self.deleted.append(wd)

    def on_queue_overflow(self) -> None:
        self.overflows += 1


@pytest.fixture
def fd() -> Iterator[InotifyFD]:
    descriptor = InotifyFD()
    descriptor.start()
    yield descriptor
    descriptor.stop()
    descriptor.join(10)


def until(met: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 10
    while not met():
        assert time.monotonic() < give_up
        time.sleep(0.005)


def add(fd: InotifyFD, path: bytes, notes: Notes, number: int = 1, mask: int = MASK_TREE) -> WatchDescriptor:
    return fd.add_callback(path, Mask(mask), notes, CallbackId(number))


def test_an_instance_is_a_daemon_thread_of_its_own(fd: InotifyFD) -> None:
    assert isinstance(fd, threading.Thread)
    assert fd.daemon
    assert fd.is_alive()
    assert fd is not InotifyFD.get_instance()


def test_the_names_and_their_parameters() -> None:
    assert list(inspect.signature(InotifyFD.add_callback).parameters) == ["self", "path", "mask", "callback", "id_"]
    assert list(inspect.signature(InotifyFD.remove_callbacks).parameters) == ["self", "callbacks"]
    for name, parameters in {"on_event": 2, "on_watch_deleted": 2, "on_queue_overflow": 1}.items():
        assert len(inspect.signature(getattr(WatchCallback, name)).parameters) == parameters
    own = {name for name in vars(WatchCallback) if name.startswith("on_")}
    assert own == {"on_event", "on_watch_deleted", "on_queue_overflow"}  # another would be called and not be there


def test_our_masks_ask_for_no_opening() -> None:
    loud = InotifyConstants.IN_OPEN | InotifyConstants.IN_ACCESS | InotifyConstants.IN_CLOSE_NOWRITE
    for mask in (MASK_TREE, MASK_MODIFY, MASK_COOKIE):
        assert not mask & loud
    assert not MASK_TREE & InotifyConstants.IN_MODIFY
    assert MASK_MODIFY & InotifyConstants.IN_MODIFY


def test_events_have_number_mask_cookie_and_raw_name(fd: InotifyFD, root: bytes) -> None:
    notes = Notes()
    wd = add(fd, root, notes)
    os.mkdir(os.path.join(root, b"\xff"))
    os.rename(os.path.join(root, b"\xff"), os.path.join(root, b"b"))
    until(lambda: len(notes.events) == 3)
    made, away, here = notes.events
    assert made.wd == away.wd == here.wd == wd
    assert (made.name, away.name, here.name) == (b"\xff", b"\xff", b"b")
    assert made.mask == InotifyConstants.IN_CREATE | InotifyConstants.IN_ISDIR
    assert away.mask == InotifyConstants.IN_MOVED_FROM | InotifyConstants.IN_ISDIR
    assert away.cookie == here.cookie != made.cookie == 0


def test_a_handle_can_be_watched_by_its_name_in_proc(fd: InotifyFD, root: bytes) -> None:
    notes = Notes()
    handle = os.open(root, os.O_RDONLY)
    by_handle = add(fd, b"/proc/self/fd/%d" % handle, notes, 1)
    os.close(handle)
    assert by_handle == add(fd, root, notes, 2)
    write(os.path.join(root, b"a"))
    until(lambda: b"a" in [each.name for each in notes.events])


def test_a_second_callback_gets_the_very_same_event_object(fd: InotifyFD, root: bytes) -> None:
    notes = Notes()
    assert add(fd, root, notes, 1) == add(fd, root, notes, 2)
    os.mkdir(os.path.join(root, b"a"))
    until(lambda: len(notes.events) == 2)
    assert notes.events[0] is notes.events[1]


def test_removing_one_of_two_callbacks_keeps_the_watch(fd: InotifyFD, root: bytes) -> None:
    notes = Notes()
    wd = add(fd, root, notes, 1)
    add(fd, root, notes, 2)
    fd.remove_callbacks([(wd, CallbackId(2))])
    os.mkdir(os.path.join(root, b"a"))
    until(lambda: len(notes.events) == 1)
    fd.remove_callbacks([(wd, CallbackId(1))])
    os.mkdir(os.path.join(root, b"b"))
    assert add(fd, root, notes, 3) != wd  # numbers are not used twice
    os.mkdir(os.path.join(root, b"c"))
    until(lambda: len(notes.events) == 2)
    assert [each.name for each in notes.events] == [b"a", b"c"]
    assert notes.deleted == []  # of what was removed by us nothing is said


def test_masks_add_up(fd: InotifyFD, root: bytes) -> None:
    notes = Notes()
    add(fd, root, notes, 1, MASK_MODIFY)
    add(fd, root, Notes(), 2, MASK_TREE)
    with open(os.path.join(root, b"a"), "wb", buffering=0) as file:
        file.write(b"x")
        until(lambda: any(each.is_modify for each in notes.events))


def test_a_removed_folder_is_told(fd: InotifyFD, root: bytes) -> None:
    notes = Notes()
    inner = os.path.join(root, b"a")
    os.mkdir(inner)
    wd = add(fd, inner, notes)
    os.rmdir(inner)
    until(lambda: notes.deleted == [wd])
    assert [each.name for each in notes.events if each.is_delete_self] == [b""]
    fd.remove_callbacks([(wd, CallbackId(1))])  # too late, and no fault


def test_a_moved_folder_says_so_after_both_names(fd: InotifyFD, root: bytes) -> None:
    notes = Notes()
    os.mkdir(os.path.join(root, b"a"))
    add(fd, root, notes)
    wd = add(fd, os.path.join(root, b"a"), notes)
    os.rename(os.path.join(root, b"a"), os.path.join(root, b"b"))
    until(lambda: len(notes.events) == 3)
    assert notes.events[2].wd == wd
    assert notes.events[2].is_move_self


def test_faults_of_adding_are_raised(fd: InotifyFD, root: bytes) -> None:
    with pytest.raises(FileNotFoundError):
        add(fd, os.path.join(root, b"none"), Notes())
    write(os.path.join(root, b"file"))
    with pytest.raises(NotADirectoryError):
        add(fd, os.path.join(root, b"file"), Notes())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_limit_is_an_os_error_with_its_number(
    fd: InotifyFD, root: bytes, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr("watchdog.observers.inotify_c.inotify_add_watch", lambda *_: -1)
    monkeypatch.setattr("ctypes.get_errno", lambda: number)
    with pytest.raises(OSError, match="limit reached") as caught:
        add(fd, root, Notes())
    assert caught.value.errno == number


def test_what_may_not_be_read_has_a_negative_number(
    fd: InotifyFD, root: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("watchdog.observers.inotify_c.inotify_add_watch", lambda *_: -1)
        patch.setattr("ctypes.get_errno", lambda: errno.EACCES)
        wd = add(fd, root, Notes())
        assert wd == -1
    fd.remove_callbacks([(wd, CallbackId(1))])
    assert add(fd, root, Notes()) > 0


def test_an_overflow_reaches_each_callback_once(fd: InotifyFD, root: bytes, outside: bytes) -> None:
    notes = Notes()
    add(fd, root, notes, 1)
    add(fd, outside, notes, 2)
    fd.handle_event(InotifyEvent(WatchDescriptor(-1), InotifyConstants.IN_Q_OVERFLOW, 0, b""))
    assert notes.overflows == 1
    assert notes.events == []


@pytest.mark.root
@pytest.mark.alone
@pytest.mark.xdist_group("sysctl")
def test_a_real_overflow_is_told_in_its_place(root: bytes) -> None:
    limit = "/proc/sys/fs/inotify/max_queued_events"
    with open(limit, encoding="ascii") as file:
        before = file.read()
    notes = Notes()
    try:
        with open(limit, "w", encoding="ascii") as file:
            file.write("16")
        descriptor = InotifyFD()
        add(descriptor, root, notes)
        for number in range(100):  # nobody reads yet
            os.mkdir(os.path.join(root, b"%d" % number))
        descriptor.start()
        until(lambda: notes.overflows == 1)
        heard = len(notes.events)
        os.mkdir(os.path.join(root, b"later"))
        until(lambda: len(notes.events) == heard + 1)
        descriptor.stop()
        descriptor.join(10)
    finally:
        with open(limit, "w", encoding="ascii") as file:
            file.write(before)
    assert heard < 100


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_that_raises_ends_the_thread(fd: InotifyFD, root: bytes) -> None:
    """Were this ever caught, the dead reader could be left out of the watcher."""
    notes = Notes()
    add(fd, root, notes)
    notes.on_event = lambda _event: 1 / 0  # type: ignore[assignment,method-assign]
    os.mkdir(os.path.join(root, b"a"))
    until(lambda: not fd.is_alive())


def test_stopping_ends_the_thread_and_closes_the_descriptor(root: bytes) -> None:
    before = set(os.listdir("/proc/self/fd"))
    descriptor = InotifyFD()
    descriptor.start()
    add(descriptor, root, Notes())
    descriptor.stop()
    descriptor.join(10)
    assert not descriptor.is_alive()
    assert set(os.listdir("/proc/self/fd")) == before
    descriptor.stop()


def test_the_observer_asks_for_no_opening(root: bytes) -> None:
    """The filter is honoured, or listing the tree would feed on itself."""
    heard: list[FileSystemEvent] = []

    class Handler(observer.FileSystemEventHandler):
        def dispatch(self, event: FileSystemEvent) -> None:
            heard.append(event)

    write(os.path.join(root, b"a"))
    watching = Observer()
    watching.start()
    watching.schedule(Handler(), os.fsdecode(root), recursive=True, event_filter=observer._FILTER)
    os.listdir(root)
    with open(os.path.join(root, b"a"), "rb") as file:
        file.read()
    write(os.path.join(root, b"b"))
    until(lambda: any(os.fsencode(each.src_path).endswith(b"/b") for each in heard))
    watching.stop()
    watching.join(10)
    assert not [each for each in heard if each.event_type in (EVENT_TYPE_OPENED, EVENT_TYPE_CLOSED_NO_WRITE)]
