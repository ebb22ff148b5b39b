"""Settings of `torch.fx`: what long passes print."""

disable_progress = True
"""Whether progress bars of passes are off."""

verbose_progress = False
"""Whether a progress bar names the pass that runs."""

do_not_emit_stack_traces = False
"""Whether verbose code leaves out the source lines that nodes come from."""
