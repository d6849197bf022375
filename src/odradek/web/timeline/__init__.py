"""What happened, with a slider that shows the cluster as it was."""
