"""Training loops: Lightning's and the raw one beside it, with the parts of each, behind one interface (`loop`)."""
