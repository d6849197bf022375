"""What is wrong with a log at a start, and what it lost by that."""
