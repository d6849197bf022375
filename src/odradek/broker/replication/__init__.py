"""The partitions of this broker, as leader and as follower."""
