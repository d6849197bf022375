"""The index files of a segment: offsets, timestamps, aborted transactions."""
