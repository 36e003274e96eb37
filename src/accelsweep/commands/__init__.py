"""The commands of the command line: each module here is one command; several share what is in the folders."""
