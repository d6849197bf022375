"""The scripts of the stories, by subject; `catalogue` has their introductions."""
