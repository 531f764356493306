"""Why an id has no checkpoint although a session's transcript has it: no prompt, or one that nobody followed."""

from collections.abc import Iterator

from sidecar.agents import registry
from sidecar.agents.fields import id_at
from sidecar.attach.catchup import found_again
from sidecar.model import UserMessage
from sidecar.store.instants import SessionRow
from sidecar.store.workspace import Workspace
from sidecar.transcript.tail import Tail


def reason_unseen(workspace: Workspace, text: str, session: str | None = None) -> str:
    """Look an id, or its beginning, up in the transcripts of a workspace's sessions (SPEC B2).

    `not-a-prompt`: a record of another kind has it. `unprotected`: a prompt has it, but no sidecar followed the
    session when it was sent, or since. `unknown`: no record has it.
    """
    for row in workspace.instants.sessions():
        if session in (None, row.session):
            for is_prompt in _records_named(row, text):
                return "unprotected" if is_prompt else "not-a-prompt"
    return "unknown"


def _records_named(row: SessionRow, text: str) -> Iterator[bool]:
    """Tell of each record with the id whether it is a prompt."""
    found = found_again(row)
    if found is None:
        return
    agent = registry()[row.agent]
    reader = agent.reader(found)
    for path in agent.transcripts_of(found):
        tail, more = Tail(path), True
        while more:
            read = tail.poll()
            more = read.more
            for record in read.records:
                events = reader.events(record, subagent=path != found.transcript)
                prompts = [event for event in events if isinstance(event, UserMessage)]
                names = [id_at(record.value, agent.table.fields.id), *(prompt.alias for prompt in prompts)]
                if any(name is not None and name.startswith(text) for name in names):
                    yield bool(prompts)
