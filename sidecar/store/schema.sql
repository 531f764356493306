-- Format 1. `sidecar.store` explains the rules that these tables keep.

CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;

CREATE TABLE path (id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE);

-- Contents -----------------------------------------------------------------------------------------------------------

CREATE TABLE blob (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    key        BLOB    NOT NULL,              -- XXH3-128 of the content: for finding, not for proving
    size_bytes INTEGER NOT NULL,
    stored_bytes INTEGER NOT NULL,
    codec      TEXT    NOT NULL CHECK (codec IN ('raw', 'zstd')),
    file       TEXT    UNIQUE,                -- in blobs/; null: the bytes lie in blob_data
    refs       INTEGER NOT NULL DEFAULT 0 CHECK (refs >= 0)
);
CREATE INDEX blob_key ON blob (key);
CREATE INDEX blob_unused ON blob (id) WHERE refs = 0;

-- Apart from `blob`, so that counting a reference does not rewrite the bytes.
CREATE TABLE blob_data (blob INTEGER PRIMARY KEY, data BLOB NOT NULL);

CREATE TABLE doomed (file TEXT PRIMARY KEY) WITHOUT ROWID;

CREATE TRIGGER blob_unreferenced AFTER UPDATE OF refs ON blob WHEN NEW.refs = 0 BEGIN
    DELETE FROM blob WHERE id = NEW.id;
END;
CREATE TABLE tally (id INTEGER PRIMARY KEY CHECK (id = 1), blobs INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO tally VALUES (1, 0, 0);
CREATE TRIGGER blob_new AFTER INSERT ON blob BEGIN
    UPDATE tally SET blobs = blobs + 1, bytes = bytes + NEW.stored_bytes;
END;
CREATE TRIGGER blob_resized AFTER UPDATE OF stored_bytes ON blob BEGIN
    UPDATE tally SET bytes = bytes + NEW.stored_bytes - OLD.stored_bytes;
END;
CREATE TRIGGER blob_gone AFTER DELETE ON blob BEGIN
    UPDATE tally SET blobs = blobs - 1, bytes = bytes - OLD.stored_bytes;
    DELETE FROM blob_data WHERE blob = OLD.id;
    INSERT OR IGNORE INTO doomed SELECT OLD.file WHERE OLD.file IS NOT NULL;
END;

-- The timeline -------------------------------------------------------------------------------------------------------

CREATE TABLE version (
    id         INTEGER PRIMARY KEY,
    path       INTEGER NOT NULL REFERENCES path,
    from_at    INTEGER NOT NULL,
    to_at      INTEGER CHECK (to_at > from_at),
    changed_lo INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    kind       TEXT    NOT NULL CHECK (kind IN ('file', 'directory', 'link', 'absent', 'unknown')),
    blob       INTEGER REFERENCES blob,
    size_bytes INTEGER NOT NULL DEFAULT 0,
    mode       INTEGER NOT NULL DEFAULT 0,
    reason     TEXT,
    rewind     INTEGER,                       -- the rewind that wrote it
    CHECK ((kind = 'file') = (blob IS NOT NULL)),
    CHECK ((kind = 'unknown') = (reason IS NOT NULL))
);
CREATE UNIQUE INDEX version_from ON version (path, from_at);
CREATE UNIQUE INDEX version_now ON version (path) WHERE to_at IS NULL;
CREATE INDEX version_changed ON version (from_at);
CREATE INDEX version_ended ON version (to_at) WHERE to_at IS NOT NULL;
CREATE INDEX version_linked ON version (path) WHERE to_at IS NULL AND kind = 'link';
CREATE INDEX version_blob ON version (blob) WHERE blob IS NOT NULL;
CREATE INDEX version_unstable ON version (to_at) WHERE kind = 'unknown' AND reason = 'unstable';

CREATE TRIGGER version_takes AFTER INSERT ON version WHEN NEW.blob IS NOT NULL BEGIN
    UPDATE blob SET refs = refs + 1 WHERE id = NEW.blob;
END;
CREATE TRIGGER version_frees AFTER DELETE ON version WHEN OLD.blob IS NOT NULL BEGIN
    UPDATE blob SET refs = refs - 1 WHERE id = OLD.blob;
END;

-- What was stands: a row only ever ends, and rows of one path never overlap.
CREATE TRIGGER version_stands BEFORE UPDATE OF id, path, from_at, changed_lo, changed_at, kind, blob, size_bytes, mode,
    reason ON version BEGIN SELECT RAISE (ABORT, 'a version cannot be changed'); END;
CREATE TRIGGER version_overlaps BEFORE INSERT ON version WHEN (
    SELECT v.to_at IS NULL OR v.to_at > NEW.from_at FROM version v
    WHERE v.path = NEW.path AND v.from_at < COALESCE(NEW.to_at, 9223372036854775807) ORDER BY v.from_at DESC LIMIT 1
) BEGIN SELECT RAISE (ABORT, 'versions of one path overlap'); END;
CREATE TRIGGER version_ends BEFORE UPDATE OF to_at ON version WHEN (
    SELECT NEW.to_at IS NULL OR NEW.to_at > v.from_at FROM version v
    WHERE v.path = NEW.path AND v.from_at > NEW.from_at ORDER BY v.from_at LIMIT 1
) BEGIN SELECT RAISE (ABORT, 'versions of one path overlap'); END;

-- What lstat said when the row that still holds was last found true.
CREATE TABLE stat (
    path       INTEGER PRIMARY KEY REFERENCES path,
    kind       TEXT NOT NULL, mode INTEGER NOT NULL, device INTEGER NOT NULL, inode INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT NULL, links INTEGER NOT NULL,
    uid        INTEGER NOT NULL, gid INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL
);

CREATE INDEX stat_inode ON stat (inode);

-- Since when every name in a directory is known: the only evidence for absence.
CREATE TABLE folder (path INTEGER PRIMARY KEY REFERENCES path, listed_at INTEGER NOT NULL);

-- Unbroken watching, [start, end]; end is pushed forward while it lasts.
CREATE TABLE coverage (id INTEGER PRIMARY KEY, start_at INTEGER NOT NULL, end_at INTEGER NOT NULL);

-- Sessions and their instants ----------------------------------------------------------------------------------------

CREATE TABLE session (
    id          TEXT PRIMARY KEY,
    agent       TEXT NOT NULL,
    transcript  BLOB NOT NULL,
    cwd         BLOB NOT NULL,                -- where it started; its records' relative paths begin there
    cap         INTEGER NOT NULL,
    attached_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE message (
    session   TEXT    NOT NULL,
    uuid      TEXT    NOT NULL,
    alias     TEXT,
    at        INTEGER NOT NULL,
    kind      TEXT    NOT NULL CHECK (kind IN ('message', 'imported', 'mark', 'baseline', 'before-rewind')),
    state     TEXT    NOT NULL CHECK (state IN ('live', 'evicted', 'unprotected', 'before-attach')),
    timeline  INTEGER NOT NULL,               -- 1: a live row is a live instant of the timeline
    parent    TEXT,
    offset    INTEGER NOT NULL DEFAULT 0,
    prompt    TEXT    NOT NULL DEFAULT '',
    pin       TEXT,
    files     INTEGER NOT NULL DEFAULT 0,
    unstable  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (session, uuid)
) WITHOUT ROWID;
CREATE INDEX message_at ON message (at) WHERE timeline = 1 AND state = 'live';
CREATE INDEX message_uuid ON message (uuid);
CREATE INDEX message_alias ON message (alias) WHERE alias IS NOT NULL;
CREATE UNIQUE INDEX message_pin ON message (pin) WHERE pin IS NOT NULL;

-- What the agent's own history says of one message: closed maps beside the timeline.
CREATE TABLE imported (
    session TEXT NOT NULL, message TEXT NOT NULL, path INTEGER NOT NULL REFERENCES path,
    kind TEXT NOT NULL CHECK (kind IN ('file', 'absent', 'unknown')),
    blob INTEGER REFERENCES blob, size_bytes INTEGER NOT NULL DEFAULT 0, mode INTEGER NOT NULL DEFAULT 0, reason TEXT,
    parent BLOB,                              -- the resolved directory that the agent saw
    PRIMARY KEY (session, message, path)
) WITHOUT ROWID;
CREATE INDEX imported_blob ON imported (blob) WHERE blob IS NOT NULL;
CREATE TRIGGER imported_stands BEFORE UPDATE ON imported BEGIN
    SELECT RAISE (ABORT, 'an imported path cannot be changed');
END;
CREATE TRIGGER imported_takes AFTER INSERT ON imported WHEN NEW.blob IS NOT NULL BEGIN
    UPDATE blob SET refs = refs + 1 WHERE id = NEW.blob;
END;
CREATE TRIGGER imported_frees AFTER DELETE ON imported WHEN OLD.blob IS NOT NULL BEGIN
    UPDATE blob SET refs = refs - 1 WHERE id = OLD.blob;
END;

CREATE TABLE turn (
    session TEXT NOT NULL, start_at INTEGER NOT NULL, end_at INTEGER, last_at INTEGER NOT NULL,
    PRIMARY KEY (session, start_at)
) WITHOUT ROWID;

-- Paths that a session's tool calls named.
CREATE TABLE edit (
    session TEXT NOT NULL, path INTEGER NOT NULL REFERENCES path, at INTEGER NOT NULL,
    PRIMARY KEY (session, path, at)
) WITHOUT ROWID;

-- Rewinds ------------------------------------------------------------------------------------------------------------

CREATE TABLE rewind (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    session    TEXT    NOT NULL,
    message    TEXT    NOT NULL,              -- the target
    before     TEXT    NOT NULL,              -- checkpoint of the state just before
    redo       TEXT,                          -- checkpoint of the state just before it was undone
    state      TEXT    NOT NULL CHECK (state IN ('done', 'undone', 'cleared')),
    at         INTEGER NOT NULL               -- when it was last done, or undone
);

-- At most one row: the rewind that is being carried out. Nobody captures its paths.
CREATE TABLE journal (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    staging TEXT    NOT NULL,
    session TEXT    NOT NULL,
    message TEXT    NOT NULL,
    before  TEXT    NOT NULL,
    pid     INTEGER NOT NULL,
    at      INTEGER NOT NULL
);
-- What was moved where, written before it is moved.
CREATE TABLE journal_step (
    path BLOB NOT NULL PRIMARY KEY, staged TEXT NOT NULL, step TEXT NOT NULL
) WITHOUT ROWID;
