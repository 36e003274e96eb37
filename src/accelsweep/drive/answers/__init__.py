"""What commands answer to scripts with `--json`: one form for each command, which stays."""
