"""Training loops: Lightning's and the bare one beside it, with what each needs, behind one interface (`loop`)."""
