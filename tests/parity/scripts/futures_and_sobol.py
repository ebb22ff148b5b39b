"""Futures, events, Sobol sequences: equal bits."""

# ruff: noqa
import warnings

warnings.simplefilter("ignore")
import torch

from torch.futures import Future, collect_all, wait_all
import torch.quasirandom as q, torch.monitor as M, datetime

f = Future()
g = f.then(lambda x: x.wait() + 1)
f.set_result(3)
print(g.wait(), f.done(), f.value())


def t(h):
    try:
        print(h())
    except Exception as e:
        print(type(e).__name__, str(e).split(": ")[0][:40] if "[" not in str(e) else "")


t(lambda: f.set_result(3))
e = Future()
e.set_exception(ValueError("x"))
t(e.wait)
t(e.value)
k = e.then(lambda x: x.wait())
t(lambda: e.set_exception(3))
h = Future()
h2 = h.then(lambda x: 1 / 0)
h.set_result(1)
c = collect_all([f, g])
print(len(c.wait()))
t(lambda: wait_all([f, g]))
t(lambda: wait_all([f, e]))
t(lambda: collect_all([f, e]).wait())
d = Future()
d.add_done_callback(lambda x: print("cb", x.done(), x.value()))
d.set_result(7)
print(collect_all([]).wait())
import threading

w = Future()
th = threading.Timer(0.05, lambda: w.set_result("late"))
th.start()
print(w.wait())
ev = M.Event(name="a", timestamp=datetime.datetime(2020, 1, 1), data={"x": 1.0, "s": "q"})
print(ev.name, ev.timestamp, sorted(ev.data.items()))


def dg(x):
    return x.double().sum().item(), x.shape, x.dtype, x[0][:3].tolist() if x.numel() else None


for dim in (1, 2, 3, 60, 1000):
    for kw in ({}, {"scramble": True, "seed": 5}):
        s = q.SobolEngine(dim, **kw)
        print(s, dg(s.draw(1)), dg(s.draw(7)), dg(s.draw(100)), s.num_generated)
        s.reset()
        s.fast_forward(9)
        print(dg(s.draw(3, dtype=torch.float64)))
        s.fast_forward(4)
        print(dg(s.draw(2)))
        print(s.shift.sum().item(), s.sobolstate.sum().item(), s.quasi.sum().item())
s = q.SobolEngine(21201)
print(dg(s.draw(5)), s.sobolstate.sum().item(), (s.sobolstate * torch.arange(1, 31)).sum().item())
torch.manual_seed(4)
print(q.SobolEngine(3, scramble=True).draw(4))
t(lambda: q.SobolEngine(2).draw_base2(2).tolist())


def z():
    s = q.SobolEngine(2)
    s.draw(3)
    return s.draw_base2(2)


t(z)
o = torch.empty(1)
q.SobolEngine(2).draw(3, out=o)
print(o)
x = q.SobolEngine(2)
x.draw(2)
print(x.draw(0).shape)
