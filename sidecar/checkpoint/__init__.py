"""Checkpoints: a user message's instant, named on the timeline, and which of them are kept."""
