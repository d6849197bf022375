"""Admin requests: topics, partitions, groups, transactions, security."""
