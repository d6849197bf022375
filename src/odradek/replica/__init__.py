"""Decisions of one broker about one of its partitions, as pure code."""
