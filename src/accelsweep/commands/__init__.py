"""What the command line and the Snakefile call: each module is one command and strings the rooms together."""
