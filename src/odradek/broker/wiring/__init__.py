"""How the parts of one broker are made and given to each other."""
