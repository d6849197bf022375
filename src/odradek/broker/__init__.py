"""The broker process: shells around the pure packages."""
