"""Attach: joins an agent's transcripts with a workspace. The running sidecar."""
