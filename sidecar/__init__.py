"""Keep a full-file checkpoint for every message sent to a coding agent, and bring any of them back.

    agent's transcript --tail--> user message (an instant) -+
                        `------> turns, tool-named paths ---+
                                                            v
    workspace --watch (hint)--> suspects --capture--> TIMELINE of the workspace --> checkpoint = a named instant on it
           `---scan (truth)--------'                  versions over [from, to) + blobs        |
                                                            ^                                 v
                                                            `---------- rewind: plan --> apply

Every verb is a folder with the same two rooms: `plan` is pure (values in, a frozen plan out, `now` is a parameter),
`apply` carries the plan out and returns an outcome. A dry run is the plan, shown. `sidecar.store` is the design
document of what is kept and in which order it is written.
"""

__version__ = "0.1.0"
