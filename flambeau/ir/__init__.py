"""The intermediate representations: nodes, grammars, and the size algebra they share.

Nothing in here knows PyTorch's API, the native core, or any target.
"""
