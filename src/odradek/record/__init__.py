"""The record batch (format v2): read, patched in place, checked, encoded."""
