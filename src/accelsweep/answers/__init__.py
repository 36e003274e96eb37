"""The answers of commands: what each tells of files, of this machine and of a forge, in tables and as JSON."""
