"""Calls as text that names `torch` and some operands, evaluated in both libraries."""


def lines(text):
    """The expressions of a text: one a line, or several with semicolons between them."""
    parts = (part for line in text.strip().splitlines() for part in line.split(";"))
    return [part.strip() for part in parts if part.strip()]


def names_of(library, operands):
    """What the statements `operands` name, made by a library."""
    names = {"torch": library}
    exec(operands, names)
    return names
