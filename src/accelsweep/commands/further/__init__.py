"""The further blocks of a sweep: after its pilot, and after each look."""
