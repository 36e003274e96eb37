"""Inside one rank of a run: from the frozen config to its result and its raw steps. Knows torch and Lightning."""
