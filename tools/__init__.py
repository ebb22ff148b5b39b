"""The Python behind ``./go``: environments, the native build, the verbs.

Nothing here may import ``flambeau``: these modules run before it is built.
"""
