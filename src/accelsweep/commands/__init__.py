"""The commands of the command line: each module is one command and strings the rooms together."""
