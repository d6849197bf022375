"""What the controller does upon each kind of event."""
