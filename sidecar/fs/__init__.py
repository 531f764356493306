"""The only room that touches workspace paths.

Rules kept here, so that no other room has to think of them:

* A path is bytes relative to a `Root`. Every system call walks to it by directory handle; no link is followed below
  the root, no other mount is entered, and a path that tries to leave is refused before any call is made.
* Reading never blocks on a FIFO, never opens a device, and says of every content whether it is sure to be whole.
* Nothing is overwritten: a file comes to a path by a rename that refuses to replace, or by an exchange after which
  what was there lies in the staging folder, still whole.
* Nothing is unlinked outside a staging folder of our own, and there only by a name that the caller gives.
* A listing in which anything could not be looked at says so (`fault`): it proves no absence.

`native` has the system calls that Python lacks, `beneath` the walk, `read`, `write` and `scan` what is done there;
`lock` and `private` serve our own store and touch no workspace.
"""
