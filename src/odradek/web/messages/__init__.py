"""The message finder: searches, live tail, export, and producing one message."""
