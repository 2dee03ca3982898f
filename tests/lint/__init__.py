"""Rules for the text of the code that no linter has: one module each, with what it looks at in its docstring."""
