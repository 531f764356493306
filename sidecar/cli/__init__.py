"""The command line: the only rooms that talk to people."""
