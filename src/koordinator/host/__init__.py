"""The machine that a node agent runs on, behind a port: files, processes, accelerators.

``port`` says what can be asked; ``linux`` is this machine, ``memory`` one made up.
"""
