"""The cluster's mind: pure state machines, events in, effects out."""
