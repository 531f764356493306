"""The forms of ids: what a person may type for a session or a message, and what cannot be one."""

import re

SHORTEST_PREFIX = 4  # characters of a message's id that may stand for it
LATEST, BASELINE = "latest", "baseline"  # words that stand for messages, and so are the names of no pins

_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._:-]*")


def may_be_session(text: str) -> bool:
    """Tell whether a text may be a session's id, or begin one."""
    return _ID.fullmatch(text) is not None


def may_be_message(text: str) -> bool:
    """Tell whether a text may be a message's id, or a prefix long enough to stand for one."""
    return _ID.fullmatch(text) is not None and len(text) >= SHORTEST_PREFIX
