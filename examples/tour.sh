#!/bin/sh
# Attach, log, diff, rewind, undo: by hand, on a session made on the spot. Needs `sidecar` on the PATH.
set -eu

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
export SIDECAR_HOME="$stage/store" CLAUDE_CONFIG_DIR="$stage/agent"
session=11111111-2222-4333-8444-555555555555
transcript="$CLAUDE_CONFIG_DIR/projects/tour/$session.jsonl"
mkdir -p "$stage/project" "$(dirname "$transcript")"
cd "$stage/project"

say() { # KIND UUID TEXT: one record, as the agent appends it
    now=$(date -u +%Y-%m-%dT%H:%M:%S.%3NZ)
    printf '{"type":"%s","uuid":"%s","parentUuid":null,"isSidechain":false,"promptSource":"typed","timestamp":"%s","cwd":"%s","sessionId":"%s","message":{"role":"%s","content":"%s"}}\n' \
        "$1" "$2" "$now" "$PWD" "$session" "$1" "$3" >>"$transcript"
}

echo "first draft" >essay.txt
say user aaaaaaaa-0000-4000-8000-000000000001 "hello"
sidecar attach "$transcript" >"$stage/log" &
watcher=$!
until grep -q Ready "$stage/log"; do sleep 0.1; done

say user bbbbbbbb-0000-4000-8000-000000000002 "rewrite my essay"
until grep -q "Checkpoint bbbbbbbb" "$stage/log"; do sleep 0.1; done
echo "something else entirely" >essay.txt
echo "notes nobody asked for" >notes.txt

sidecar log
sidecar diff --patch bbbbbbbb
sidecar rewind bbbbbbbb --yes
cat essay.txt
sidecar undo --yes
cat essay.txt

kill "$watcher"
wait "$watcher" || true
sidecar check
