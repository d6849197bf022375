"""Compaction: what of a log is kept, and the files that replace its segments."""
