"""The process: shells around the pure packages."""
