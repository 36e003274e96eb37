"""What a sweep has shown: the numbers of its report, and the advice that rests on them."""
