"""What can be proved, bounded or estimated of an encoding without training: plain NumPy and mpmath, a file a subject.

From outside: `value`.
"""
