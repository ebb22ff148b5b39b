"""Measurements and tables of torch.utils.benchmark."""

# ruff: noqa
import warnings

warnings.simplefilter("ignore")
import torch
import torch.utils.benchmark as B


def p(m):
    print("\n".join(repr(m).split("\n")[1:]))


M = B.Measurement
T = B.TaskSpec
for m in [
    M(
        2,
        [1e-3, 1.2e-3, 1.1e-3, 1.05e-3],
        T("x+1", "x=1", label="lab", sub_label="sub", description="d", env="e", num_threads=2),
    ),
    M(1, [5e-6], T("y", "pass")),
    M(1, [5e-6, 9e-6, 1e-6, 1.1e-6, 8e-6], T("a\nb", "pass\nq", description="de")),
    M(3, [5e-6, 6e-6], T("a", "b", sub_label="z", description="de")),
]:
    p(m)
    print(
        round(m.mean, 12),
        round(m.median, 12),
        round(m.iqr, 12),
        m.significant_figures,
        m.has_warnings,
        m.as_row_name,
        "|",
        m.title,
        "|",
        m.meets_confidence(),
        m.env,
    )
ms = [
    M(1, [t], T("s", "p", label="L", sub_label=sl, description=d, num_threads=nt))
    for t, sl, d, nt in [
        (1e-3, "a", "x", 1),
        (2e-3, "a", "y", 1),
        (3e-6, "b", "x", 1),
        (4e-3, "b", "y", 2),
        (1.5e-3, "a", "x", 2),
    ]
]
c = B.Compare(ms)
c.print()
c.trim_significant_figures()
c.print()
c.colorize()
print(repr(str(c)))
ms = [
    M(1, [t, t * 1.01, t * 0.99], T("s" + str(i // 3), "p", sub_label=sl, description=d, env=e))
    for i, (t, sl, d, e) in enumerate(
        [
            (1e-3, "a", "x", "E1"),
            (2.345e-3, "a", "yyyyyyyyyyyy", "E1"),
            (3.33e-3, "bbbbbbbbbb", "x", "E1"),
            (4e-7, "b", "y", "E1"),
            (1.5e-7, "a", "y", "E2"),
        ]
    )
]
c = B.Compare(ms)
c.print()
c.trim_significant_figures()
c.print()
print(
    B.select_unit(1e-5),
    B.unit_to_english("us"),
    B.trim_sigfig(1234.5, 2),
    B.ordered_unique([1, 2, 1]),
)
p(M.merge([ms[0], ms[0]])[0])
