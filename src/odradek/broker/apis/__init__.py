"""What each API does: one file for each, named as in wire/messages."""
