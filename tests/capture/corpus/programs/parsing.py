"""Parsers, interpreters, text algorithms, data structures."""

import re
from collections import OrderedDict, namedtuple

import flambeau as torch
from tests.capture.corpus.cases import case, family, t

Token = namedtuple("Token", "kind text")


def tokens(text):
    for match in re.finditer(r"\s*(?:(\d+\.?\d*)|([a-z]\w*)|(.))", text):
        number, name, other = match.groups()
        if number:
            yield Token("number", number)
        elif name:
            yield Token("name", name)
        else:
            yield Token("op", other)


class Parser:
    levels = [{"+", "-"}, {"*", "/"}]

    def __init__(self, text, names):
        self.tokens, self.at, self.names = list(tokens(text)), 0, names

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else Token("end", "")

    def take(self):
        token = self.peek()
        self.at += 1
        return token

    def binary(self, level=0):
        if level == len(self.levels):
            return self.atom()
        value = self.binary(level + 1)
        while self.peek().text in self.levels[level]:
            op = self.take().text
            right = self.binary(level + 1)
            value = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
                     "/": lambda a, b: a / b}[op](value, right)  # fmt: skip
        return value

    def atom(self):
        token = self.take()
        if token.kind == "number":
            return float(token.text)
        if token.kind == "name":
            return self.names[token.text]
        if token.text == "(":
            value = self.binary()
            if self.take().text != ")":
                raise SyntaxError("no )")
            return value
        if token.text == "-":
            return -self.atom()
        raise SyntaxError(f"unexpected {token.text!r} at {self.at}")


@family(
    numbers=[("1 + 2 * (3 - 4) / 5", {}), ("2 *", {}), ("1 / 0", {}), ("(1", {})],
    names=[("a * a - b", {"a": 3.0, "b": 1.0}), ("a + c", {"a": 1.0})],
    tensors=[("x * 2 + y", {"x": t(3), "y": t(3)}), ("-(x - 1) / 2", {"x": t(2)})],
)
def calculate(text, names):
    return Parser(text, names).binary()


@family(
    plain=[(["push 2", "push 3", "add", "dup", "mul"],), (["pop"],)],
    tensors=[(["push 2", "load", "mul", "load", "add"],), (["load", "load", "mul", "pop"],)],
    jumps=[(["push 3", "push 1", "sub", "dup", "jnz 1"],), (["jump 2", "push 1", "push 5"],)],
)
def machine(program):
    x, stack, at, steps = t(3), [], 0, 0
    while at < len(program) and steps < 50:
        name, *args = program[at].split()
        at, steps = at + 1, steps + 1
        match name, args:
            case "push", [number]:
                stack.append(int(number))
            case "load", []:
                stack.append(x)
            case "dup", []:
                stack.append(stack[-1])
            case "pop", []:
                stack.pop()
            case "jump", [target]:
                at = int(target)
            case "jnz", [target]:
                at = int(target) if stack[-1] else at
            case ("add" | "sub" | "mul") as op, []:
                b, a = stack.pop(), stack.pop()
                stack.append(a + b if op == "add" else a - b if op == "sub" else a * b)
            case _:
                raise ValueError(f"unknown instruction {name}")
    return stack, steps


@case(("3 4 + 2 *",), ("1",), ("+",), ("",))
def postfix(text):
    stack = []
    ops = {"+": int.__add__, "*": int.__mul__, "-": int.__sub__}
    for word in text.split():
        if word in ops:
            right = stack.pop()
            stack.append(ops[word](stack.pop(), right))
        else:
            stack.append(int(word))
    (result,) = stack
    return result


@case(("(a (b c) d)",), ("()",), ("(a",), (")",))
def lisp(text):
    words = text.replace("(", " ( ").replace(")", " ) ").split()

    def read():
        if not words:
            raise EOFError("unbalanced")
        word = words.pop(0)
        if word == ")":
            raise SyntaxError("unexpected )")
        if word != "(":
            return word
        result = []
        while words and words[0] != ")":
            result.append(read())
        if not words:
            raise EOFError("unbalanced")
        words.pop(0)
        return tuple(result)

    return read()


@case(("a=1;b=x y;c",), ("",), ("=",))
def key_values(text):
    result = {}
    for part in filter(None, text.split(";")):
        key, separator, value = part.partition("=")
        result[key.strip()] = value if separator else True
    return result


@case(('{"a": [1, 2.5, true, null], "b": {}}',), ('"x"',), ("[1, ]",), ("nope",))
def json_by_hand(text):
    at = 0

    def space():
        nonlocal at
        while at < len(text) and text[at] in " \n\t":
            at += 1

    def expect(what):
        nonlocal at
        if not text.startswith(what, at):
            raise ValueError(f"expected {what} at {at}")
        at += len(what)

    def items(end, read):
        result = []
        space()
        while not text.startswith(end, at):
            if result:
                expect(",")
            result.append(read())
            space()
        expect(end)
        return result

    def pair():
        space()
        key = value()
        space()
        expect(":")
        return key, value()

    def value():
        nonlocal at
        space()
        for word, constant in (("true", True), ("false", False), ("null", None)):
            if text.startswith(word, at):
                at += len(word)
                return constant
        if text.startswith("{", at):
            at += 1
            return dict(items("}", pair))
        if text.startswith("[", at):
            at += 1
            return items("]", value)
        if text.startswith('"', at):
            end = text.index('"', at + 1)
            word, at = text[at + 1 : end], end + 1
            return word
        match = re.compile(r"-?\d+(\.\d+)?").match(text, at)
        if match is None:
            raise ValueError(f"nothing at {at}")
        at = match.end()
        return float(match[0]) if match[1] else int(match[0])

    return value()


@case(("abcabcabd", "abcabd"), ("aaa", "b"), ("", "a"), ("x", ""))
def knuth_morris_pratt(text, pattern):
    table, k = [0] * len(pattern), 0
    for i in range(1, len(pattern)):
        while k and pattern[i] != pattern[k]:
            k = table[k - 1]
        k += pattern[i] == pattern[k]
        table[i] = k
    k = 0
    for i, letter in enumerate(text):
        while k and letter != pattern[k]:
            k = table[k - 1]
        k += letter == pattern[k]
        if k == len(pattern):
            return i - k + 1
    return -1


@case(("aaabbc",), ("",), ("abc",))
def run_lengths(text):
    runs = []
    for letter in text:
        if runs and runs[-1][0] == letter:
            runs[-1] = (letter, runs[-1][1] + 1)
        else:
            runs.append((letter, 1))
    return "".join(f"{count}{letter}" for letter, count in runs), runs


@case(("Hello, World!", 3), ("xyz", 5), ("", 1), ("a", "b"))
def caesar(text, shift):
    result = ""
    for letter in text:
        if letter.isalpha():
            base = ord("A") if letter.isupper() else ord("a")
            letter = chr((ord(letter) - base + shift) % 26 + base)
        result += letter
    return result


@case(("abracadabra",), ("",), ("aa",))
def lempel_ziv(text):
    table = {chr(i): i for i in range(256)}
    word, result = "", []
    for letter in text:
        if word + letter in table:
            word += letter
        else:
            result.append(table[word])
            table[word + letter] = len(table)
            word = letter
    return result + [table[word]] if word else result


@case(("the cat the dog",), ("",), ("a",))
def words(text):
    counts, index = {}, {}
    for position, word in enumerate(text.split()):
        counts[word] = counts.get(word, 0) + 1
        index.setdefault(word, []).append(position)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0])), index


@case((["tea", "ten", "i", "in"], "te"), ([], "a"), (["a"], ""))
def trie(entries, prefix):
    class Node(dict):
        final = False

    root = Node()
    for word in entries:
        node = root
        for letter in word:
            node = node.setdefault(letter, Node())
        node.final = True
    node = root
    for letter in prefix:
        if letter not in node:
            return []
        node = node[letter]

    def walk(node, word):
        if node.final:
            yield word
        for letter in sorted(node):
            yield from walk(node[letter], word + letter)

    return list(walk(node, prefix))


@case(([("a", 1), ("b", 2), ("c", 3), ("a", 0)], 2), ([], 1), ([("x", 1)], 0))
def least_recently_used(accesses, size):
    cache, evicted = OrderedDict(), []
    for key, value in accesses:
        cache[key] = value
        cache.move_to_end(key)
        if len(cache) > size:
            evicted.append(cache.popitem(last=False))
    return list(cache.items()), evicted


@case(([3, 1, 2],), ([],), (["a"],))
def linked_list(values):
    class Node:
        __slots__ = ("value", "next")

        def __init__(self, value, next=None):
            self.value, self.next = value, next

    head = None
    for value in values:
        head = Node(value, head)
    back = None
    while head:
        head.next, back, head = back, head, head.next
    result = []
    while back:
        result.append(back.value)
        back = back.next
    return result


@case(([1, 2, 3], t(3)), ([], t(2)), ([0.5], t(1)))
def stack_and_queue(values, x):
    class Stack:
        def __init__(self):
            self.items = []

        def push(self, value):
            self.items.append(value)
            return self

        def pop(self):
            if not self.items:
                raise IndexError("an empty stack")
            return self.items.pop()

        def __len__(self):
            return len(self.items)

        def __bool__(self):
            return bool(self.items)

    stack = Stack()
    for value in values:
        stack.push(x * value).push(value)
    out = []
    while stack:
        out.append(stack.pop())
    return out, len(stack)


class Sparse:
    def __init__(self, entries, shape):
        self.entries, self.shape = dict(entries), shape

    def __matmul__(self, other):
        if self.shape[1] != len(other):
            raise ValueError(f"{self.shape} @ {len(other)}")
        result = [0] * self.shape[0]
        for (i, j), value in self.entries.items():
            result[i] = result[i] + value * other[j]
        return result

    def __add__(self, other):
        entries = dict(self.entries)
        for key, value in other.entries.items():
            entries[key] = entries.get(key, 0) + value
        return Sparse(entries, self.shape)


@family(
    numbers=[({(0, 1): 2, (1, 0): 3}, [1, 2]), ({}, [1, 2]), ({(0, 0): 1}, [1])],
    tensors=[({(0, 0): t(3), (1, 1): t(3)}, [t(3), 2]), ({(1, 0): 2.0}, [t(2), t(2)])],
)
def sparse(entries, vector):
    m = Sparse(entries, (2, 2))
    return m @ vector, (m + m) @ vector


class Dual:
    def __init__(self, value, slope=0.0):
        self.value, self.slope = value, slope

    def __add__(self, other):
        other = other if isinstance(other, Dual) else Dual(other)
        return Dual(self.value + other.value, self.slope + other.slope)

    __radd__ = __add__

    def __mul__(self, other):
        other = other if isinstance(other, Dual) else Dual(other)
        return Dual(self.value * other.value, self.value * other.slope + self.slope * other.value)

    __rmul__ = __mul__

    def __neg__(self):
        return self * -1

    def __sub__(self, other):
        return self + -other


@family(numbers=[(2.0,), (0.0,), (-1,)], tensors=[(t(3),), (t(2, 2),), ("a",)])
def dual(x):
    d = Dual(x, 1.0)
    result = 3 * d * d - d + 2
    return result.value, result.slope


@family(numbers=[(1, 2), (0, -1)], tensors=[(t(2), t(2)), (t(3), 2.0)])
def quaternion(a, b):
    def multiply(p, q):
        (a1, b1, c1, d1), (a2, b2, c2, d2) = p, q
        return (
            a1 * a2 - b1 * b2 - c1 * c2 - d1 * d2,
            a1 * b2 + b1 * a2 + c1 * d2 - d1 * c2,
            a1 * c2 - b1 * d2 + c1 * a2 + d1 * b2,
            a1 * d2 + b1 * c2 - c1 * b2 + d1 * a2,
        )

    return multiply((a, b, a, b), multiply((1, 0, b, 0), (b, a, 1, 0)))


class Value:
    """Reverse mode by hand."""

    def __init__(self, data, parents=()):
        self.data, self.parents, self.grad = data, parents, 0.0

    def __add__(self, other):
        return Value(self.data + other.data, ((self, 1.0), (other, 1.0)))

    def __mul__(self, other):
        return Value(self.data * other.data, ((self, other.data), (other, self.data)))

    def backward(self):
        order, seen = [], []

        def visit(node):
            if not any(node is other for other in seen):
                seen.append(node)
                for parent, _ in node.parents:
                    visit(parent)
                order.append(node)

        visit(self)
        self.grad = 1.0
        for node in reversed(order):
            for parent, local in node.parents:
                parent.grad = parent.grad + local * node.grad


@family(numbers=[(2.0, 3.0), (0.0, 1.0)], tensors=[(t(2), t(2)), (t(3), t(3))])
def micrograd(a, b):
    a, b = Value(a), Value(b)
    result = (a * b + a) * a
    result.backward()
    return result.data, a.grad, b.grad


class Matrix:
    def __init__(self, rows):
        self.rows = [list(row) for row in rows]

    def __getitem__(self, key):
        i, j = key
        return self.rows[i][j]

    def __setitem__(self, key, value):
        i, j = key
        self.rows[i][j] = value

    def __iter__(self):
        return iter(self.rows)

    def __eq__(self, other):
        return isinstance(other, Matrix) and self.rows == other.rows

    def transposed(self):
        return Matrix(zip(*self.rows))


@case(([[1, 2], [3, 4]],), ([[t(2), 1]],), ([],))
def matrix(rows):
    m = Matrix(rows)
    if rows:
        m[0, 0] = m[0, 0] * 10
    return [list(row) for row in m.transposed()], m[0, 0]


@case((t(3), [("scale", 2), ("shift", 1)]), (t(2), [("clamp", 0.0)]), (t(2), [("what", 1)]))
def pipeline(x, steps):
    registry = {}

    def register(name):
        def add(function):
            registry[name] = function
            return function

        return add

    @register("scale")
    def _(x, by):
        return x * by

    @register("shift")
    def _(x, by):
        return x + by

    registry["clamp"] = lambda x, low: x.clamp(min=low)
    for name, value in steps:
        x = registry[name](x, value)
    return x, list(registry)


@case((t(2), "train"), (t(2), "eval"), (t(2), "stop"))
def states(x, event):
    table = {("idle", "train"): "running", ("idle", "eval"): "testing"}
    state, log = "idle", []
    try:
        state = table[state, event]
    except KeyError as error:
        log.append(error.args[0])
        state = "failed"
    finally:
        log.append(state)
    return torch.stack([x, x + len(log)]), log
