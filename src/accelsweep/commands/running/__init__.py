"""The common part of commands that measure: the user's arguments, and a sweep measured to the last run of its plan."""
