"""Long lives: what passes through a process must not stay in its memory."""
