"""The commands of `odradek` itself."""
