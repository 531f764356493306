"""The store: what is kept of a workspace, and the order in which it is written.

    SIDECAR_HOME/                    0700; `sidecar-store` marks it as ours
      workspaces/<id>/store.db       one timeline a workspace: SQLite, WAL, synchronous=FULL
      workspaces/<id>/blobs/         contents too large to live inside the database
      workspaces/<id>/asks/          a rewind asks the live capturer here; its cookie files, too
      locks/                         flocks: they die with their process

**Instant.** A single integer: UTC nanoseconds. Agents' records carry milliseconds, so the digits below are free, and
two messages of one millisecond are told apart there by the order of their records (`sidecar.checkpoint.plan`).

**Version.** A row of `version` says what a path was over [from, to): a file with its blob, a directory, a link,
absent, or unknown with a reason. `to` is null for the row that still holds. Rows of one path never overlap; where none
contains an instant, the state there is unknown. `changed_lo .. changed_at` is when the change that began the row was
made: the same as `from`, but for a removal (an interval) and for a row that a rewind wrote (the restored row's).

**Live instants** are the rows of `message` that are neither evicted nor beside the timeline: user messages, marks,
baselines, before-rewind states. A version that has ended is kept while a live instant lies in it; the row that still
holds is always kept. Evicting an instant therefore looks only at rows that end between its live neighbours.

**References.** `blob.refs` counts rows of `version` and `imported`; triggers keep it, so it cannot drift from the
rows. At zero the blob goes in the same transaction, and the name of its file, if it has one, moves to `doomed`.

**Order of writing.** A large content is written to a file of a random name, synced, renamed and its directory synced
*before* the row that names it is committed: a crash leaves a file that no row names, removed at the next start. A
file is unlinked only *after* the commit that forgot it. Small contents, versions, references, transcript offsets and
checkpoints commit together or not at all. An announced checkpoint is a committed one.

*Survives:* SIGKILL and power loss at any instant, as far as the file system keeps what it was told to sync.
*Does not survive:* the removal of its directory; a file system that lies about fsync.
"""
