"""One process with torch and Lightning loaded, from which the supervisors of a sweep's blocks are forked."""
