"""The group coordinator's mind: members, generations, offsets. Pure."""
