"""Go back to the state before the newest message, unless something would be left behind; run it in the project."""

import json
import subprocess
import sys


def sidecar(*args: str) -> dict:
    done = subprocess.run(["sidecar", *args, "--json"], capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(done.stderr.strip())
    return json.loads(done.stdout)


plan = sidecar("rewind", "latest", "--dry-run")
if plan["error"]:
    sys.exit(plan["error"])
for kept in plan["kept"]:
    print(f"would stay: {kept['path']} ({kept['reason']})")
if not plan["filesChanged"]:
    sys.exit("nothing to take back")
if not plan["kept"] or input("Go ahead all the same? [y/N] ").lower() == "y":
    done = sidecar("rewind", "latest", "--yes")
    print(f"{len(done['restored'])} restored, {len(done['removed'])} removed; `sidecar undo` takes it back")
