"""Users, ACLs and quotas."""
