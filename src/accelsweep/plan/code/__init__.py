"""The code that a run would import: the user's and ours, by digests that decide what is measured again."""
