"""The topics, and the replicas of one topic on lanes."""
