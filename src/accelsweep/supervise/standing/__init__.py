"""What stands before a block begins: earlier results, the versions to compare, data that is prepared."""
