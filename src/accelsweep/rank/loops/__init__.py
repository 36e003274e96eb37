"""Training loops: Lightning's and the raw one beside it, with what each needs, behind one interface (`loop`)."""
