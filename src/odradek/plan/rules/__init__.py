"""The doctor's rules by their subjects: each makes findings of the facts."""
