"""The controller's state machines: pure, events in, effects out."""
