"""The commands of the command line: each module here is one command, and no command imports another one's module.

The folders hold what several commands share, and those that a detached head or another command carries out too.
"""
