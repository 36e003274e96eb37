"""What a sweep has shown: the numbers of its report, the advice that rests on them, what a claim projects."""
