"""Value types shared by all packages, with the invariants that hold everywhere."""
