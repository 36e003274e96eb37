"""What the commands that measure share: the user's arguments, and a sweep measured to the last run of its plan."""
