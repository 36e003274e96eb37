"""The versions that `ab` compares: what a name stands for, and the trees in which their sources lie."""
