"""What the command line calls: each module is one command and strings the rooms together."""
