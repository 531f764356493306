"""Transcripts: bytes of an agent's file, as records.

`lines` turns bytes into records and never fails: what is no record is a fragment, with its offset, and stays where it
is. `tail` follows a file that somebody else appends to, truncates or replaces. What a record *means* is the affair of
`sidecar.agents`.
"""
