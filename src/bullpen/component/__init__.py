"""What every server of ours shares: its log, and how the system keeps it running."""
