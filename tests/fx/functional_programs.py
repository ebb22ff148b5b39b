"""Programs that write and alias, for graphs without either; of any library with PyTorch's API."""

from __future__ import annotations


def numbers(library, *shape, start=0):
    """Small numbers of a shape, equal in all libraries."""
    count = 1
    for size in shape:
        count *= size
    return ((library.arange(float(count)) + start) * 0.37 - 1).sin().reshape(shape)


def _on_values(library):
    """Writes into new tensors: name: function of one matrix."""
    torch, functional = library, library.nn.functional

    def chain(x):
        y = x.clone()
        y.add_(1).mul_(x).relu_()
        return y

    def several(x):
        y = x + 1
        y.sub_(x)
        y.div_(2)
        y.pow_(2)
        return y, x * y

    def promoted(x):
        y = torch.zeros(3, 4, dtype=torch.float64)
        y.add_(x)
        return y

    def integers(x):
        y = torch.zeros(3, 4, dtype=torch.int64)
        y.add_(2)
        return y + x

    def conditions(x):
        y = x.clone()
        y.masked_fill_(x > 0, 2.0)
        y.clamp_(-1, 1)
        return y.where(x < 0, x)

    def filled(x):
        y = torch.empty_like(x)
        y.fill_(3.0)
        return y + x

    def zeroed(x):
        y = x.clone()
        y.zero_()
        return y + x

    def copied(x):
        y = torch.zeros_like(x)
        y.copy_(x)
        return y * 2

    def copied_row(x):
        y = torch.zeros(3, 4)
        y.copy_(x[0])
        return y * 2

    def lerped(x):
        y = x.clone()
        y.lerp_(x * 2, 0.3)
        y.addcmul_(x, x, value=2.0)
        y.addcdiv_(x, x + 3)
        return y

    def matrix(x):
        y = torch.zeros(3, 3)
        y.addmm_(x, x.t())
        return y

    def accumulated(x):
        y = x.clone()
        y.cumsum_(1)
        return y

    def scattered(x):
        y = torch.zeros(3, 4)
        y.scatter_(1, torch.tensor([[0, 1], [1, 2], [2, 3]]), x)
        y.index_add_(0, torch.tensor([0, 2]), x[:2])
        y.index_fill_(0, torch.tensor([1]), 2.0)
        y.index_copy_(0, torch.tensor([0, 1]), x[1:])
        return y

    def scatter_added(x):
        y = torch.zeros(3, 4)
        y.scatter_add_(1, torch.tensor([[0, 1], [1, 2], [2, 3]]), x)
        return y

    def put(x):
        y = x.clone()
        y.index_put_((torch.tensor([0, 1]), torch.tensor([2, 3])), torch.tensor([5.0, 6.0]))
        return y

    def put_accumulated(x):
        y = x.clone()
        y.index_put_((torch.tensor([0, 0]),), x[:2], accumulate=True)
        return y

    def put_item(x):
        y = x.clone()
        y[torch.tensor([0, 2])] = x[1:]
        return y

    def masked(x):
        y = x.clone()
        y[x > 0] = 0.0
        return y

    def normed(x):
        mean, var = torch.zeros(4), torch.ones(4)
        y = functional.batch_norm(x, mean, var, training=True)
        return y, mean, var

    def loop(x):
        y = torch.zeros(3)
        for k in range(4):
            y += x[:, k]
        return y

    def dropped(x):
        return functional.relu(x.clone(), inplace=True) + functional.leaky_relu_(x + 1)

    def cast_in_place(x):
        y = x.to(torch.float64)
        y.add_(x)
        return y.to(torch.float32)

    def sorted_values(x):
        y = x.clone()
        values, places = y.sort(1)
        values.mul_(2)
        return values, places

    def compared(x):
        y = x.clone()
        y.gt_(0)
        y.neg_()
        return y.floor_()

    return {
        "chain": chain, "several": several, "promoted": promoted, "integers": integers,
        "conditions": conditions, "filled": filled, "zeroed": zeroed, "copied": copied,
        "copied row": copied_row, "lerped": lerped, "matrix": matrix,
        "accumulated": accumulated, "scattered": scattered, "scatter added": scatter_added,
        "put": put, "put accumulated": put_accumulated, "put item": put_item, "masked": masked,
        "normed": normed, "loop": loop, "activations": dropped, "cast in place": cast_in_place,
        "sorted": sorted_values, "compared": compared,
    }  # fmt: skip


def _on_views(library):
    """Writes into views: name: function of one matrix."""
    torch = library

    def through(make, again=False):
        def program(x):
            y = x.clone()
            make(y).mul_(2)
            if again:
                make(y).add_(1)
            return y + 1

        return program

    def both(make):
        def program(x):
            y = x.clone()
            z = make(y)
            y.mul_(2)
            z.add_(1)
            return y, z

        return program

    views = {
        "view": lambda y: y.view(-1),
        "view of view": lambda y: y.view(2, 6).view(12),
        "transpose": lambda y: y.transpose(0, 1),
        "t": lambda y: y.t(),
        "select": lambda y: y[1],
        "select last": lambda y: y.select(1, -1),
        "slice": lambda y: y[1:],
        "slice with steps": lambda y: y[:, ::2],
        "slice of slice": lambda y: y[1:, 1:3],
        "narrow": lambda y: y.narrow(1, 1, 2),
        "unsqueeze": lambda y: y.unsqueeze(1),
        "squeeze": lambda y: y.unsqueeze(0).squeeze(0),
        "squeeze all": lambda y: y.unsqueeze(0).squeeze(),
        "permute": lambda y: y.view(3, 2, 2).permute(2, 0, 1),
        "diagonal": lambda y: y.diagonal(),
        "split": lambda y: y.split(2, 1)[1],
        "split of sizes": lambda y: y.split([1, 3], 1)[1],
        "chunk": lambda y: y.chunk(2, 1)[0],
        "unbind": lambda y: y.unbind(0)[2],
        "detach": lambda y: y.detach(),
        "flatten": lambda y: y.flatten(),
        "select of transpose": lambda y: y.t()[2],
        "transpose of slice": lambda y: y[:2].t(),
        "as strided": lambda y: y.as_strided((2, 2), (4, 1), 1),
        "element": lambda y: y[1, 2],
        "row of view": lambda y: y.view(4, 3)[1],
    }
    programs = {f"into {name}": through(make) for name, make in views.items()}
    for name in ("view", "slice", "select", "transpose", "diagonal", "row of view"):
        programs[f"twice into {name}"] = through(views[name], True)
        programs[f"beside {name}"] = both(views[name])

    def item(x):
        y = x.clone()
        y[0] = 1.0
        y[:, 1] = x[:, 0]
        return y

    def parts(x):
        y = x.clone()
        first, second = y.split(2, 1)
        first.add_(second)
        second.mul_(first)
        return y

    def expanded(x):
        y = torch.zeros(4)
        z = y.expand(3, 4)
        y.add_(1)
        return z + x

    def turned(x):
        y = x.clone()
        y.t_()
        y.add_(1)
        y.unsqueeze_(0)
        y.squeeze_(0)
        y.transpose_(0, 1)
        return y

    def between(x):
        y = x.clone()
        z = y[0]
        before = z + 1
        y.add_(1)
        after = z + 1
        z.mul_(3)
        return before, after, y.sum()

    def swapped(x):
        y = x.clone()
        y[0], y[1] = y[1].clone(), y[0].clone()
        return y

    def accumulated(x):
        y = torch.zeros(2, 3, 4)
        y[0] += x
        y[1] -= x
        y[:, 1, 2:] *= 3
        return y

    def returned(x):
        y = x * 2
        z = y.view(-1)
        z.add_(1)
        return z, y[0]

    return programs | {
        "item": item, "parts": parts, "expanded": expanded, "turned": turned, "between": between,
        "swapped": swapped, "blocks": accumulated, "returned views": returned,
    }  # fmt: skip


def _on_inputs(library):
    """Functions that write their arguments: name: function of two matrices."""
    torch, functional = library, library.nn.functional

    def written(x, y):
        x.add_(y)
        return x * 2

    def view_written(x, y):
        x[0].mul_(2)
        return y + x

    def view_of_view(x, y):
        x.view(-1)[2:5].zero_()
        return y

    def both(x, y):
        x.add_(y)
        y.mul_(x)
        return x + y

    def input_returned(x, y):
        x.mul_(2)
        return x, y

    def view_returned(x, y):
        return x.t(), y[0]

    def written_view_returned(x, y):
        x.add_(1)
        return x.view(-1), y

    def nothing(x, y):
        x.copy_(y)

    def into(x, y):
        torch.add(x, y, out=x)
        return x + y

    def into_other(x, y):
        torch.mul(x, x, out=y)
        return y.sum()

    def into_new(x, y):
        z = torch.empty(3, 4)
        torch.sub(x, y, out=z)
        return z

    def into_view(x, y):
        torch.exp(y[0], out=x[1])
        return x

    def statistics(x, y):
        return functional.batch_norm(x, y[0], y[1], training=True)

    def only_read(x, y):
        return torch.cat([x, y]).sum(0)

    def no_change(x, y):
        z = x + y
        z.relu_()
        return z.view(4, 3)

    def steps(x, y):
        x.mul_(0.9).add_(y, alpha=0.1)
        return (x - y).square().mean()

    def item(x, y):
        x[1, 2] = 7.0
        x[y > 0] = 0.0
        return x.sum()

    return {
        "written": written, "view written": view_written, "view of view": view_of_view,
        "both": both, "input returned": input_returned, "view returned": view_returned,
        "written view returned": written_view_returned, "nothing": nothing, "into": into,
        "into other": into_other, "into new": into_new, "into view": into_view,
        "statistics": statistics, "only read": only_read, "no change": no_change, "steps": steps,
        "items": item,
    }  # fmt: skip


def programs(library):
    """name: (function, arguments)"""
    x, y = numbers(library, 3, 4), numbers(library, 3, 4, start=5)
    alone = {**_on_values(library), **_on_views(library)}
    return {name: (function, (x,)) for name, function in alone.items()} | {
        f"inputs: {name}": (function, (x, y)) for name, function in _on_inputs(library).items()
    }
