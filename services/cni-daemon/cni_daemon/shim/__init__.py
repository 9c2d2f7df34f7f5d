"""The shim: the program that runtimes execute, its source and its making."""
