"""The log's files by the operating system."""
