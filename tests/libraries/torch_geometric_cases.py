"""torch_geometric: layers and models on a small graph, as far as they need no extension."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch_geometric import nn, utils
from torch_geometric.data import Batch, Data

from tests.libraries.cases import Case, Program

NODES, WIDTH, EDGE = 12, 8, 3


def noise(*size: int) -> torch.Tensor:
    """Standard normal numbers from a fixed seed."""
    return torch.randn(*size, generator=torch.Generator().manual_seed(sum(size)))


def edges() -> torch.Tensor:
    """An undirected graph: a ring with chords."""
    ring = torch.arange(NODES)
    pairs = torch.cat(
        [
            torch.stack([ring, (ring + 1) % NODES]),
            torch.stack([ring[::3], (ring[::3] + 5) % NODES]),
        ],
        1,
    )
    return utils.to_undirected(pairs)


INDEX = edges()
NODE = noise(NODES, WIDTH)
ATTRIBUTES = noise(INDEX.shape[1], EDGE)
WEIGHTS = noise(INDEX.shape[1]).abs() + 0.1
KINDS = torch.arange(INDEX.shape[1]) % 3
PLACES = noise(NODES, 3)
GRAPHS = torch.arange(NODES) // 6


def mlp(inputs: int, outputs: int) -> torch.nn.Sequential:
    """A small network inside layers that ask for one."""
    linear = torch.nn.Linear
    return torch.nn.Sequential(linear(inputs, 16), torch.nn.ReLU(), linear(16, outputs))


GRAPH, WITH_WEIGHTS = (NODE, INDEX), (NODE, INDEX, WEIGHTS)
LAYERS: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
    "gcn": (lambda: nn.GCNConv(WIDTH, 6), WITH_WEIGHTS),
    "cheb": (lambda: nn.ChebConv(WIDTH, 6, K=3), GRAPH),
    "sage": (lambda: nn.SAGEConv(WIDTH, 6), GRAPH),
    "sage_lstm": (lambda: nn.SAGEConv(WIDTH, 6, aggr="max", normalize=True), GRAPH),
    "graph": (lambda: nn.GraphConv(WIDTH, 6), WITH_WEIGHTS),
    "gated": (lambda: nn.GatedGraphConv(WIDTH, 2), GRAPH),
    "res_gated": (lambda: nn.ResGatedGraphConv(WIDTH, 6), GRAPH),
    "gat": (lambda: nn.GATConv(WIDTH, 6, heads=2), GRAPH),
    "gat_edges": (lambda: nn.GATConv(WIDTH, 6, heads=2, edge_dim=EDGE), (NODE, INDEX, ATTRIBUTES)),
    "gatv2": (lambda: nn.GATv2Conv(WIDTH, 6, heads=2), GRAPH),
    "transformer": (lambda: nn.TransformerConv(WIDTH, 6, heads=2, beta=True), GRAPH),
    "agnn": (lambda: nn.AGNNConv(), GRAPH),
    "tag": (lambda: nn.TAGConv(WIDTH, 6), WITH_WEIGHTS),
    "gin": (lambda: nn.GINConv(mlp(WIDTH, 6), train_eps=True), GRAPH),
    "gine": (
        lambda: nn.GINEConv(mlp(WIDTH, 6), edge_dim=EDGE),
        (NODE, INDEX, ATTRIBUTES),
    ),
    "arma": (lambda: nn.ARMAConv(WIDTH, 6, num_stacks=2, num_layers=2), WITH_WEIGHTS),
    "sg": (lambda: nn.SGConv(WIDTH, 6, K=2), WITH_WEIGHTS),
    "ssg": (lambda: nn.SSGConv(WIDTH, 6, alpha=0.1, K=2), WITH_WEIGHTS),
    "appnp": (lambda: nn.APPNP(3, 0.1), WITH_WEIGHTS),
    "mf": (lambda: nn.MFConv(WIDTH, 6), GRAPH),
    "rgcn": (lambda: nn.RGCNConv(WIDTH, 6, 3, num_bases=2), (NODE, INDEX, KINDS)),
    "fast_rgcn": (lambda: nn.FastRGCNConv(WIDTH, 6, 3), (NODE, INDEX, KINDS)),
    "rgat": (lambda: nn.RGATConv(WIDTH, 6, 3), (NODE, INDEX, KINDS)),
    "signed": (lambda: nn.SignedConv(WIDTH, 6, first_aggr=True), (NODE, INDEX, INDEX.flip(0))),
    "point": (lambda: nn.PointNetConv(mlp(WIDTH + 3, 6)), (NODE, PLACES, INDEX)),
    "gmm": (lambda: nn.GMMConv(WIDTH, 6, dim=EDGE, kernel_size=4), (NODE, INDEX, ATTRIBUTES)),
    "nnconv": (
        lambda: nn.NNConv(WIDTH, 6, mlp(EDGE, WIDTH * 6)),
        (NODE, INDEX, ATTRIBUTES),
    ),
    "cg": (lambda: nn.CGConv(WIDTH, dim=EDGE), (NODE, INDEX, ATTRIBUTES)),
    "edge": (lambda: nn.EdgeConv(mlp(2 * WIDTH, 6)), GRAPH),
    "feast": (lambda: nn.FeaStConv(WIDTH, 6, heads=2), GRAPH),
    "hypergraph": (lambda: nn.HypergraphConv(WIDTH, 6), GRAPH),
    "le": (lambda: nn.LEConv(WIDTH, 6), WITH_WEIGHTS),
    "cluster": (lambda: nn.ClusterGCNConv(WIDTH, 6), GRAPH),
    "gen": (lambda: nn.GENConv(WIDTH, 6, aggr="softmax", learn_t=True), GRAPH),
    "gcn2": (lambda: nn.GCN2Conv(WIDTH, alpha=0.1), (NODE, NODE + 1, INDEX)),
    "pna": (
        lambda: nn.PNAConv(
            WIDTH, 6, ["mean", "min", "max", "std"], ["identity", "amplification"],
            torch.tensor([0, 0, 8, 4]),
        ),
        GRAPH,
    ),
    "film": (lambda: nn.FiLMConv(WIDTH, 6), GRAPH),
    "supergat": (lambda: nn.SuperGATConv(WIDTH, 6, heads=2), GRAPH),
    "fa": (lambda: nn.FAConv(WIDTH), (NODE, NODE + 1, INDEX)),
    "eg": (lambda: nn.EGConv(WIDTH, 8, num_heads=2), GRAPH),
    "pdn": (lambda: nn.PDNConv(WIDTH, 6, EDGE, 8), (NODE, INDEX, ATTRIBUTES)),
    "general": (lambda: nn.GeneralConv(WIDTH, 6, attention=True), GRAPH),
    "lg": (lambda: nn.LGConv(), WITH_WEIGHTS),
    "mixhop": (lambda: nn.MixHopConv(WIDTH, 6), GRAPH),
    "antisymmetric": (lambda: nn.AntiSymmetricConv(WIDTH), GRAPH),
    "gps": (lambda: nn.GPSConv(WIDTH, nn.GCNConv(WIDTH, WIDTH), heads=2), GRAPH),
    "point_transformer": (lambda: nn.PointTransformerConv(WIDTH, 6), (NODE, PLACES, INDEX)),
    "hetero_linear": (lambda: nn.HeteroLinear(WIDTH, 6, 3), (NODE, torch.arange(NODES) % 3)),
    # Models.
    "model_gcn": (lambda: nn.GCN(WIDTH, 16, 3, 5, norm="batch_norm", jk="cat"), GRAPH),
    "model_sage": (lambda: nn.GraphSAGE(WIDTH, 16, 2, 5), GRAPH),
    "model_gin": (lambda: nn.GIN(WIDTH, 16, 2, 5), GRAPH),
    "model_gat": (lambda: nn.GAT(WIDTH, 16, 2, 5, heads=2, v2=True), GRAPH),
    "model_edge": (lambda: nn.EdgeCNN(WIDTH, 16, 2, 5), GRAPH),
    "model_lightgcn": (lambda: nn.LightGCN(NODES, 8, 2), (INDEX,)),
    "model_unet": (lambda: nn.GraphUNet(WIDTH, 16, 5, depth=2), GRAPH),
    "model_attentive": (
        lambda: nn.AttentiveFP(WIDTH, 16, 5, EDGE, 2, 2),
        (NODE, INDEX, ATTRIBUTES, GRAPHS),
    ),
    "model_mlp": (lambda: nn.MLP([WIDTH, 16, 5], norm="layer_norm"), (NODE,)),
    "model_linkx": (lambda: nn.LINKX(NODES, WIDTH, 16, 5, 2), GRAPH),
    "model_rect": (lambda: nn.RECT_L(WIDTH, 16), WITH_WEIGHTS),
    # Norms, pooling and aggregation.
    "graph_norm": (lambda: nn.GraphNorm(WIDTH), (NODE, GRAPHS)),
    "pair_norm": (lambda: nn.PairNorm(), (NODE, GRAPHS)),
    "instance_norm": (lambda: nn.InstanceNorm(WIDTH, affine=True), (NODE, GRAPHS)),
    "layer_norm": (lambda: nn.LayerNorm(WIDTH), (NODE, GRAPHS)),
    "diff_group_norm": (lambda: nn.DiffGroupNorm(WIDTH, 3), (NODE,)),
    "topk": (lambda: nn.TopKPooling(WIDTH, 0.5), (NODE, INDEX, None, GRAPHS)),
    "sag": (lambda: nn.SAGPooling(WIDTH, 0.5), (NODE, INDEX, None, GRAPHS)),
    "asap": (lambda: nn.ASAPooling(WIDTH, 0.5), (NODE, INDEX, None, GRAPHS)),
    "edge_pool": (lambda: nn.EdgePooling(WIDTH), (NODE, INDEX, GRAPHS)),
    "mem_pool": (lambda: nn.MemPooling(WIDTH, 6, 2, 3), (NODE, GRAPHS)),
    "set2set": (lambda: nn.Set2Set(WIDTH, 2), (NODE, GRAPHS)),
    "attention": (lambda: nn.AttentionalAggregation(mlp(WIDTH, 1)), (NODE, GRAPHS)),
    "sort": (lambda: nn.SortAggregation(4), (NODE, GRAPHS)),
    "median": (lambda: nn.MedianAggregation(), (NODE, GRAPHS)),
    "softmax": (lambda: nn.SoftmaxAggregation(learn=True), (NODE, GRAPHS)),
    "lstm": (lambda: nn.LSTMAggregation(WIDTH, 6), (NODE, GRAPHS)),
    "gru": (lambda: nn.GRUAggregation(WIDTH, 6), (NODE, GRAPHS)),
    "transformer_set": (
        lambda: nn.SetTransformerAggregation(WIDTH, heads=2),
        (NODE, GRAPHS),
    ),
    "equilibrium": (lambda: nn.DeepSetsAggregation(mlp(WIDTH, 6), mlp(6, 4)), (NODE, GRAPHS)),
}  # fmt: skip


def functions() -> Program:
    """Functions of graphs."""

    def run() -> list[Any]:
        weights = utils.get_laplacian(INDEX, WEIGHTS, "sym", num_nodes=NODES)
        return [
            *weights,
            utils.degree(INDEX[0], NODES),
            utils.softmax(WEIGHTS, INDEX[1], num_nodes=NODES),
            utils.to_dense_adj(INDEX, edge_attr=WEIGHTS),
            *utils.to_dense_batch(NODE, GRAPHS),
            *utils.add_self_loops(INDEX, WEIGHTS, num_nodes=NODES),
            *utils.k_hop_subgraph(0, 2, INDEX, relabel_nodes=True),
            *utils.subgraph([0, 1, 2, 6], INDEX, WEIGHTS),
            *utils.coalesce(torch.cat([INDEX, INDEX], 1), torch.cat([WEIGHTS, WEIGHTS])),
            utils.scatter(NODE, GRAPHS, reduce="max"),
            nn.global_mean_pool(NODE, GRAPHS),
            utils.to_undirected(INDEX[:, :5]),
            utils.sort_edge_index(INDEX.flip(0)),
        ]

    return Program(run)


def training() -> Program:
    """Twenty steps on two graphs in one batch, with dropout."""

    def run() -> Any:
        torch.manual_seed(0)
        graphs = [Data(NODE + i, INDEX, y=torch.arange(NODES) % 3) for i in range(2)]
        batch = Batch.from_data_list(graphs)
        model = nn.GCN(WIDTH, 16, 2, 3, dropout=0.5)
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(batch.x, batch.edge_index), batch.y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return [torch.stack(losses), batch.batch, batch.ptr]

    return Program(run)


CASES: dict[str, Callable[[], Case | Program]] = {
    name: functools.partial(lambda make, args: Case(make(), args), make, args)
    for name, (make, args) in LAYERS.items()
}
CASES |= {"functions": functions, "training": training}
