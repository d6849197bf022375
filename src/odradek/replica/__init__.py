"""One partition on one broker: pure."""
