"""Pushes the changed parts of a page to everyone who has it open."""
