"""Consumer groups: state, members, lag in records and in seconds, history, and new offsets."""
