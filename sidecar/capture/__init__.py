"""Capture: reading what changed in a workspace and placing it on the timeline."""
