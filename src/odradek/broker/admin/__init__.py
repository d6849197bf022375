"""What administrators change by request: topics, options, ACLs, quotas."""
