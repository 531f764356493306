"""Rewind: bringing the files of an instant back, as a small transaction that can be undone."""
