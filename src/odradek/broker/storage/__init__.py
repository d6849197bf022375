"""What is done to logs in the background: cleaning, retention, checkpoints, open files."""
