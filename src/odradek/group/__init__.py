"""The group coordinator's state machine: members, generations, committed offsets. Pure."""
