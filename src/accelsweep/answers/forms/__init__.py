"""The answers of commands to scripts with `--json`: one form for each command, which stays."""
