"""Where runs are played: in forks of child processes, so many at a time, until a seed fails."""
