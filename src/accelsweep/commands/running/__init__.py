"""The part of the commands that measure which a terminal and a detached head share.

It has the user's request, and a sweep measured to the last run of its plan. Versions, nodes and claims each have a
module with what is measured and judged of them.
"""
