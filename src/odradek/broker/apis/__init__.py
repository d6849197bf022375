"""The handler of each API, one file for each, named as in wire/messages."""
