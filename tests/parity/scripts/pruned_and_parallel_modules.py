"""Pruning, orthogonal weights, batch norm of several processes, data parallelism without devices."""

# ruff: noqa
import warnings

warnings.simplefilter("ignore")
import torch, torch.nn as nn
import torch.nn.utils.prune as P
import torch.nn.utils.parametrizations as PP


def t(name, f):
    try:
        print(name, f())
    except Exception as e:
        print(name, type(e).__name__)


def r(x):
    return [round(v, 3) + 0.0 for v in x.flatten().tolist()]


def lin():
    torch.manual_seed(0)
    return nn.Linear(4, 3)


for n, a in [
    ("identity", ()),
    ("random_unstructured", (5,)),
    ("random_unstructured", (0.3,)),
    ("l1_unstructured", (5,)),
    ("l1_unstructured", (0.5,)),
    ("random_structured", (1, 0)),
    ("random_structured", (0.5, 1)),
    ("ln_structured", (2, 2, 1)),
    ("ln_structured", (1, 1, 0)),
    ("ln_structured", (0.5, float("inf"), -1)),
    ("l1_unstructured", (50,)),
    ("l1_unstructured", (-1,)),
    ("l1_unstructured", (1.5,)),
    ("l1_unstructured", ("a",)),
    ("ln_structured", (1, 2, 5)),
]:
    m = lin()
    t(
        (n, a),
        lambda: (
            getattr(P, n)(m, "weight", *a),
            r(m.weight_mask),
            r(m.weight),
            list(m.state_dict()),
            len(m._forward_pre_hooks),
        )[1:],
    )
    print(sorted(dict(m.named_parameters())), P.is_pruned(m))
m = lin()
P.l1_unstructured(m, "weight", 3)
P.ln_structured(m, "weight", 1, 2, 0)
P.random_unstructured(m, "weight", 2)
print(
    r(m.weight_mask),
    [type(h).__name__ for h in m._forward_pre_hooks.values()],
    len(list(m._forward_pre_hooks.values())[0]),
)
x = torch.ones(2, 4)
m(x).sum().backward()
print(r(m.weight_orig.grad))
P.remove(m, "weight")
print(list(m.state_dict()), r(m.weight), P.is_pruned(m))
t("rm", lambda: P.remove(m, "weight"))
t("bias", lambda: P.ln_structured(m, "bias", 1, 2, 0))
a, b = lin(), nn.Linear(2, 2)
P.global_unstructured([(a, "weight"), (b, "weight"), (b, "bias")], P.L1Unstructured, amount=0.4)
print(r(a.weight_mask), r(b.weight_mask), r(b.bias_mask))
t("g", lambda: P.global_unstructured([(a, "weight")], P.LnStructured, amount=0.4, n=2))
t(
    "imp",
    lambda: r(
        P.l1_unstructured(
            lin(), "weight", 3, importance_scores=torch.arange(12.0).view(3, 4)
        ).weight_mask
    ),
)
t("pr", lambda: r(P.L1Unstructured(2).prune(torch.tensor([1.0, -5, 3, 0.1]))))
c = lin()
P.custom_from_mask(c, "bias", torch.tensor([0, 1, 0]))
print(r(c.bias))
for om in (None, "matrix_exp", "cayley", "householder"):
    for shape in ((3, 3), (4, 2), (2, 4)):
        for tr in (True, False):
            torch.manual_seed(0)
            l = PP.orthogonal(
                nn.Linear(shape[1], shape[0]), orthogonal_map=om, use_trivialization=tr
            )
            print(om, shape, tr, r(l.weight))
            l(torch.ones(1, shape[1])).sum().backward()
            print(r(l.parametrizations.weight.original.grad), list(l.state_dict()))

            def asg():
                l.weight = torch.eye(max(shape))[: shape[0], : shape[1]]

            t("assign", lambda: (asg(), r(l.weight))[1])
t("o", lambda: PP.orthogonal(nn.Linear(2, 2), "bias"))
t("o", lambda: PP.orthogonal(nn.Linear(2, 2), "x"))
t("o", lambda: PP.orthogonal(nn.Linear(2, 2), orthogonal_map="x"))
print(
    nn.SyncBatchNorm.convert_sync_batchnorm(
        nn.Sequential(
            nn.BatchNorm2d(3),
            nn.Sequential(nn.BatchNorm1d(2, affine=False, momentum=0.3)),
            nn.Linear(1, 1),
        )
    )
)
torch.manual_seed(1)
s = nn.SyncBatchNorm(3)
x = torch.randn(2, 3, 4)
print(r(s(x)), r(s.running_mean))
s.eval()
print(r(s(x)))
t("s", lambda: s(torch.ones(3)))
par = nn.parallel
for f in [
    lambda: par.replicate(nn.Linear(2, 3), [0]),
    lambda: par.gather([torch.ones(2)], "cpu"),
    lambda: par.parallel_apply([nn.Identity()] * 2, [torch.ones(2)]),
    lambda: par.parallel_apply([nn.Identity()], [torch.ones(2)]),
    lambda: par.data_parallel(nn.Linear(2, 3), torch.ones(1, 2)),
    lambda: par.comm.reduce_add([torch.ones(2)]),
    lambda: par.replicate(nn.Linear(2, 3), ["cpu", "cpu"]),
    lambda: par.scatter(torch.ones(2), ["cpu"]),
]:
    t("p", f)
torch.manual_seed(1)
x = torch.randn(2, 5, 3, 3)
for n in (1, 2, 3, 4):
    print(r(nn.CrossMapLRN2d(n, 0.1)(x))[:6])
print(nn.CrossMapLRN2d(2))
print(nn.Container(a=nn.Linear(1, 1)))
t("k", lambda: nn.factory_kwargs({"a": 1}))
t("k", lambda: nn.factory_kwargs({"device": 1, "factory_kwargs": {"device": 2}}))
t("k", lambda: nn.factory_kwargs(None))
d = {"module.a": 1, "b": 2, "module.c.d": 3}
nn.modules.utils.consume_prefix_in_state_dict_if_present(d, "module.")
print(d)
