"""Peers of the encodings of images, videos and graphs."""

from fractions import Fraction
from types import SimpleNamespace

import mpmath
import numpy as np
from peer_case import DOUBLE, IN_SINGLE, SINGLE, Case, double, phases, power, waves, weights

H, W, C = 3, 4, 12
N = H * W


# ---------------------------------------------------------------------------------------------------------------------
# Tables


TABLE = waves(1 + 9, C)


def vit(size):
    """ViT's position vectors of a grid of 3 by 3, resized to another one."""

    def resized():
        import torch
        from transformers.models.vit.modeling_vit import ViTEmbeddings

        made = ViTEmbeddings(
            SimpleNamespace(
                hidden_size=C, image_size=(3, 3), patch_size=(1, 1), num_channels=1, hidden_dropout_prob=0.0
            )
        )
        made.position_embeddings.data, made.patch_size = double(TABLE)[None], 1
        tokens = torch.zeros(1, 1 + size[0] * size[1], C, dtype=torch.float64)
        return made.interpolate_pos_encoding(tokens, *size)[0].detach().numpy()

    return resized


def torch_interpolate():
    from torch.nn.functional import interpolate

    grid = double(TABLE[1:]).reshape(3, 3, C).permute(2, 0, 1)[None]
    new = interpolate(grid, size=(4, 5), mode="bilinear", align_corners=True)
    return np.concatenate([TABLE[:1], new[0].permute(1, 2, 0).reshape(20, C).numpy()])


def between_corners(index):
    """Row y 2/3, column x 2/4 of the grid of 3 by 3, linearly between four cells."""
    token, channel = index
    if token == 0:
        return TABLE[0, channel]
    y, x = divmod(token - 1, 5)
    y, x = mpmath.mpf(2 * y) / 3, mpmath.mpf(2 * x) / 4
    top, left = min(int(y), 1), min(int(x), 1)
    cells = [(i, j, (1 - abs(y - i)) * (1 - abs(x - j))) for i in (top, top + 1) for j in (left, left + 1)]
    return sum(share * mpmath.mpf(float(TABLE[1 + 3 * i + j, channel])) for i, j, share in cells)


def learned_2d(grid):
    def table(build):
        length = 1 + grid[0] * grid[1]
        sizes = {"dim": C, "train_length": 10, "params": {"table": TABLE}}
        return build("learned_2d", length, grid=grid, train_grid=(3, 3), class_token=True, **sizes)["table"]

    return table


ROWS, COLUMNS = waves(50, C // 2), waves(50, C // 2, seed=1)


def detr_learned():
    from transformers.models.detr.modeling_detr import DetrLearnedPositionEmbedding

    made = DetrLearnedPositionEmbedding(C // 2)
    made.row_embeddings.weight.data, made.column_embeddings.weight.data = double(ROWS), double(COLUMNS)
    return made((1, 1, H, W), "cpu", None)[0].detach().numpy().reshape(C, N).T


def detr_sine(normalize):
    def table():
        import torch
        from transformers.models.detr.modeling_detr import DetrSinePositionEmbedding

        made = DetrSinePositionEmbedding(C // 2, normalize=normalize)((1, 1, H, W), "cpu", torch.float64)
        return made[0].numpy().reshape(C, N).T

    return table


def mae_authors():
    from transformers.models.vit_mae.modeling_vit_mae import get_2d_sincos_pos_embed

    return get_2d_sincos_pos_embed(C, 4)


def mae_rewritten():
    import torch
    from transformers.models.vit_mae.modeling_vit_mae import build_2d_sinusoidal_position_embedding

    return build_2d_sinusoidal_position_embedding(H, W, C, dtype=torch.float64).numpy()


def timm_sincos():
    from timm.layers import build_sincos2d_pos_embed

    # sines of row and column, cosines of row and column
    made = build_sincos2d_pos_embed([H, W], C).numpy().reshape(N, 2, 2, C // 4)
    return made[:, :, ::-1].swapaxes(1, 2).reshape(N, C)


def mae(grid, channels=slice(None)):
    return lambda build: build("sincos_2d_mae", grid[0] * grid[1], dim=C, grid=grid)["table"][:, channels]


def column_first(index):
    """x first, as the check values of the authors' code have it: channel 0 of row 0, column 1 is sin 1."""
    token, channel = index
    y, x = divmod(token, W)
    angle = (y if channel >= C // 2 else x) / power(1e4, channel % (C // 4), C // 4)
    return mpmath.cos(angle) if channel % (C // 2) >= C // 4 else mpmath.sin(angle)


def positional_encodings_3d():
    import torch
    from positional_encodings.torch_encodings import PositionalEncoding3D

    made = PositionalEncoding3D(C)(torch.zeros(1, 2, H, W, C))[0].numpy().reshape(2 * N, 3, C // 6, 2)
    return made[:, [0, 2, 1]].swapaxes(2, 3).reshape(2 * N, C)


def frame_column_row(index):
    token, channel = index
    frame, (y, x) = token // N, divmod(token % N, W)
    place = (frame, x, y)[channel // (C // 3)]
    angle = place / power(1e4, channel % (C // 6), C // 6)
    return mpmath.cos(angle) if channel % (C // 3) >= C // 6 else mpmath.sin(angle)


SPACE, TIME = waves(10, C), waves(2, C, seed=1)


def timesformer(grid):
    def table():
        import torch
        from transformers.models.timesformer.modeling_timesformer import TimesformerEmbeddings

        made = TimesformerEmbeddings(
            SimpleNamespace(
                hidden_size=C, num_frames=2, hidden_dropout_prob=0.0, attention_type="divided_space_time",
                image_size=3, patch_size=1, num_channels=1,
            )
        ).double()  # fmt: skip
        for parameter in made.parameters():
            parameter.data.zero_()
        made.position_embeddings.data, made.time_embeddings.data = double(SPACE)[None], double(TIME)[None]
        frames, h, w = grid
        found = made(torch.zeros(1, frames, 1, h, w, dtype=torch.float64))[0].detach().numpy()
        cells = found[1:].reshape(h * w, frames, C).swapaxes(0, 1).reshape(-1, C)
        return np.concatenate([found[:1], cells])

    return table


def factorised(grid):
    def table(build):
        params = {"space": SPACE, "time": TIME}
        sizes = {"dim": C, "train_length": 19, "params": params, "class_token": True}
        return build("factorised_st", 1 + int(np.prod(grid)), grid=grid, train_grid=(2, 3, 3), **sizes)["table"]

    return table


# ---------------------------------------------------------------------------------------------------------------------
# Biases of windows


def looked_up(slots):
    return slots["values"][:, slots["index"]]


WINDOW = waves((2 * H - 1) * (2 * W - 1), 2)
CLASSED = waves(25 + 3, 2)


def swin():
    from transformers.models.swin.modeling_swin import SwinRelativePositionBias

    made = SwinRelativePositionBias(2, (H, W))
    made.relative_position_bias_table.data = double(WINDOW)
    return made()[0].detach().numpy()


def timm_index(size, class_token):
    def index():
        from timm.layers.pos_embed_rel import gen_relative_position_index

        return gen_relative_position_index(size, class_token=class_token).numpy().astype(np.int32)

    return index


def beit():
    from transformers.models.beit.modeling_beit import BeitRelativePositionBias

    made = BeitRelativePositionBias(SimpleNamespace(image_size=3, patch_size=1, num_attention_heads=2))
    made.relative_position_bias_table.data = double(CLASSED)
    return made((3, 3))[0].detach().numpy()


def network(hidden):
    return {"w1": waves(2, hidden), "b1": waves(hidden, seed=1), "w2": waves(hidden, 2, seed=2) / hidden**0.5}


def swinv2():
    import torch
    from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

    config = SimpleNamespace(qkv_bias=False, attention_probs_dropout_prob=0.0)
    made = Swinv2SelfAttention(config, 2 * N, 2, (H, W)).double()
    params, (first, _, last) = network(512), made.continuous_position_bias_mlp
    first.weight.data, first.bias.data = double(params["w1"].T), double(params["b1"])
    last.weight.data = double(params["w2"].T)
    return made(torch.zeros(1, N, 2 * N, dtype=torch.float64), output_attentions=True)[1][0].detach().numpy()


def timm_swinv2():
    from timm.layers.pos_embed_rel import RelPosMlp

    made = RelPosMlp((H, W), num_heads=2, hidden_dim=16, mode="swin").double().eval()
    params = network(16)
    made.mlp.fc1.weight.data, made.mlp.fc1.bias.data = double(params["w1"].T), double(params["b1"])
    made.mlp.fc2.weight.data = double(params["w2"].T)
    return made.get_bias()[0].detach().numpy()


def continuous(build, hidden):
    return build("swinv2_cpb", N, heads=2, dim=2 * N, grid=(H, W), hidden=hidden, params=network(hidden))


def exactly_continuous(index):
    """16 sigmoid(MLP(sign log2(|8 c / (side - 1)| + 1) / 3)), 40 digits."""
    head, query, key = index
    places = []
    for place, other, side in ((query // W, key // W, H), (query % W, key % W, W)):
        c = mpmath.mpf(8 * (place - other)) / (side - 1)
        places.append(mpmath.sign(c) * mpmath.log(abs(c) + 1, 2) / 3)
    w1, b1, w2 = (np.vectorize(lambda x: mpmath.mpf(float(x)))(network(16)[name]) for name in ("w1", "b1", "w2"))
    u = sum(max(places[0] * w1[0, k] + places[1] * w1[1, k] + b1[k], 0) * w2[k, head] for k in range(16))
    return 16 / (1 + mpmath.exp(-u))


# ---------------------------------------------------------------------------------------------------------------------
# Graphs


# a ring of five with a chord and a tail: no two eigenvalues are equal
EDGES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 0, 0, 2, 4, 5)
NODES, STEPS = 6, 4


def both_ways():
    pairs = np.array(EDGES).reshape(-1, 2)
    return np.concatenate([pairs, pairs[:, ::-1]]).T


def through_geometric(name, **options):
    import torch
    import torch_geometric.transforms as transforms
    from torch_geometric.data import Data

    edges = torch.tensor(both_ways())
    ones = torch.ones(edges.shape[1], dtype=torch.float64) if name == "AddLaplacianEigenvectorPE" else None
    graph = Data(edge_index=edges, num_nodes=NODES, edge_weight=ones)
    return getattr(transforms, name)(attr_name="found", **options)(graph).found.numpy()


def returns(index):
    """The chance to be back after index[1] + 1 steps, in fractions."""
    node, last = index
    neighbours = [[int(v) for u, v in both_ways().T if u == here] for here in range(NODES)]
    there = [Fraction(here == node) for here in range(NODES)]
    for _ in range(last + 1):
        shares = [chance / len(around) for chance, around in zip(there, neighbours, strict=True)]
        there = [sum((shares[u] for u in neighbours[v]), Fraction(0)) for v in range(NODES)]
    return mpmath.mpf(there[node].numerator) / there[node].denominator


def signed(columns):
    """Eigenvectors with their largest entry positive: their sign is free."""
    return columns * np.sign(np.take_along_axis(columns, np.abs(columns).argmax(0)[None], 0))


BIASES, DEGREES, VIRTUAL = waves(512, 2), waves(2, 512, C, seed=1), waves(1, 2, seed=2)


def graphormer():
    """Bias and degree vectors; the paths between nodes are networkx's."""
    import networkx
    import torch
    from transformers.models.deprecated.graphormer import modeling_graphormer as peer

    config = SimpleNamespace(
        num_attention_heads=2, multi_hop_max_dist=5, num_edges=1, edge_type="single", num_spatial=512, num_atoms=1,
        hidden_size=C, pad_token_id=0, num_in_degree=512, num_out_degree=512,
    )  # fmt: skip
    paths = dict(networkx.all_pairs_shortest_path_length(networkx.Graph(np.array(EDGES).reshape(-1, 2).tolist())))
    distance = torch.tensor([[paths[u][v] + 1 for v in range(NODES)] for u in range(NODES)])[None]
    bias, nodes = peer.GraphormerGraphAttnBias(config), peer.GraphormerGraphNodeFeature(config)
    bias.spatial_pos_encoder.weight.data = double(BIASES)
    bias.graph_token_virtual_distance.weight.data = double(VIRTUAL)
    empty = torch.zeros(1, NODES, 1, dtype=torch.long)
    free = torch.zeros(1, NODES + 1, NODES + 1, dtype=torch.float64)
    edges = torch.zeros(1, NODES, NODES, 1, dtype=torch.long)
    scores = bias.double()(empty, free, distance, None, edges)[0]
    nodes.atom_encoder.weight.data.zero_()
    nodes.graph_token.weight.data.zero_()
    nodes.in_degree_encoder.weight.data, nodes.out_degree_encoder.weight.data = map(double, DEGREES)
    degree = torch.tensor(np.bincount(both_ways()[0])[None] + 1)
    table = nodes(empty, degree, degree)[0]
    return np.concatenate([scores.detach().numpy().ravel(), table.detach().numpy().ravel()])


def our_graphormer(build):
    params = {"bias": BIASES, "zin": DEGREES[0], "zout": DEGREES[1], "virtual": VIRTUAL}
    sizes = {"dim": C, "heads": 2, "params": params}
    slots = build("graphormer", NODES + 1, edges=EDGES, virtual_node=True, centrality=True, **sizes)
    return np.concatenate([looked_up(slots).ravel(), slots["table"].ravel()])


def laplacian(build):
    return build("laplacian", NODES, dim=3, edges=EDGES, count=3, params={"weight": np.eye(3)})["table"]


SWIN = "transformers.models.swin.modeling_swin"
MAE = "transformers.models.vit_mae.modeling_vit_mae"
CASES = (
    Case(
        "learned_2d", "torch", "torch", "nn.functional.interpolate, bilinear, corners aligned", torch_interpolate,
        learned_2d((4, 5)), DOUBLE,
    ),
    Case(
        "learned_2d", "transformers", "transformers.models.vit.modeling_vit", "ViTEmbeddings", vit((3, 3)),
        learned_2d((3, 3)), DOUBLE, note="same_grid",
    ),
    Case(
        "learned_2d", "transformers", "transformers.models.vit.modeling_vit", "ViTEmbeddings", vit((4, 5)),
        learned_2d((4, 5)), 2.0, differs=0.1, exact=between_corners, note="resized",
        why="bicubic, corners not aligned: DINO's choice; ViT's authors resample linearly between aligned corners",
    ),
    Case(
        "learned_2d_detr", "transformers", "transformers.models.detr.modeling_detr", "DetrLearnedPositionEmbedding",
        detr_learned, lambda build: build(
            "learned_2d_detr", N, dim=C, grid=(H, W), params={"row": ROWS, "column": COLUMNS})["qk_table"], DOUBLE,
    ),
    *(
        Case(
            "sincos_2d_detr", "transformers", "transformers.models.detr.modeling_detr", "DetrSinePositionEmbedding",
            detr_sine(normalize), lambda build, normalize=normalize: build(
                "sincos_2d_detr", N, dim=C, grid=(H, W), normalize=normalize)["qk_table"], DOUBLE,
            note="normalized" if normalize else "counted",
        )
        for normalize in (True, False)
    ),
    Case("sincos_2d_mae", "transformers", MAE, "get_2d_sincos_pos_embed", mae_authors, mae((4, 4)), DOUBLE,
         why="the authors' own code, in transformers before 5", note="authors"),
    Case(
        "sincos_2d_mae", "transformers", MAE, "build_2d_sinusoidal_position_embedding", mae_rewritten, mae((H, W)),
        2.0, differs=0.1, exact=column_first, note="rewritten",
        why="transformers 5 puts the row first; the authors' code, and transformers before 5, the column",
    ),
    Case(
        "sincos_2d_mae", "timm", "timm.layers", "build_sincos2d_pos_embed", timm_sincos, mae((H, W)), phases(W),
        exact=column_first, why="row first, sines of both axes before cosines: rearranged; angles in float32",
    ),
    Case(
        "sincos_3d", "positional-encodings", "positional_encodings.torch_encodings", "PositionalEncoding3D",
        positional_encodings_3d, lambda build: build("sincos_3d", 2 * N, dim=C, grid=(2, H, W))["table"], phases(W),
        exact=frame_column_row, why="sines and cosines interleaved, row before column: rearranged; angles in float32",
    ),
    *(
        Case(
            "factorised_st", "transformers", "transformers.models.timesformer.modeling_timesformer",
            "TimesformerEmbeddings", timesformer(grid), factorised(grid), DOUBLE, note=note,
            why="tokens go by place, then frame: rearranged",
        )
        for grid, note in (((2, 3, 3), "same_grid"), ((3, 4, 5), "resized"))
    ),
    Case(
        "swin_bias", "transformers", SWIN, "SwinRelativePositionBias", swin,
        lambda build: looked_up(build("swin_bias", N, dim=C, heads=2, grid=(H, W), params={"table": WINDOW})), DOUBLE,
    ),
    Case(
        "swin_bias", "timm", "timm.layers.pos_embed_rel", "gen_relative_position_index", timm_index((H, W), False),
        lambda build: build("swin_bias", N, dim=C, heads=2, grid=(H, W), params={"table": WINDOW})["index"], 0.0,
    ),
    Case(
        "beit_bias", "transformers", "transformers.models.beit.modeling_beit", "BeitRelativePositionBias", beit,
        lambda build: looked_up(build(
            "beit_bias", 10, dim=C, heads=2, grid=(3, 3), class_token=True, params={"table": CLASSED})), DOUBLE,
    ),
    Case(
        "beit_bias", "timm", "timm.layers.pos_embed_rel", "gen_relative_position_index", timm_index((3, 3), True),
        lambda build: build(
            "beit_bias", 10, dim=C, heads=2, grid=(3, 3), class_token=True, params={"table": CLASSED})["index"], 0.0,
    ),
    Case(
        "swinv2_cpb", "transformers", "transformers.models.swinv2.modeling_swinv2", "Swinv2SelfAttention", swinv2,
        lambda build: weights(*np.zeros((2, 2, N, N)), continuous(build, 512)), 1e-5,
        why="attention of zero queries and keys; logarithms of coordinates in float32",
    ),
    Case(
        "swinv2_cpb", "timm", "timm.layers.pos_embed_rel", "RelPosMlp", timm_swinv2,
        lambda build: looked_up(continuous(build, 16)), 1e-5, exact=exactly_continuous,
        why="logarithms of coordinates in float32",
    ),
    Case(
        "laplacian", "torch-geometric", "torch_geometric.transforms", "AddLaplacianEigenvectorPE",
        lambda: signed(through_geometric("AddLaplacianEigenvectorPE", k=3, is_undirected=True)),
        lambda build: signed(laplacian(build)), DOUBLE, why="signs are random there: largest entry made positive",
    ),
    Case(
        "rwse", "torch-geometric", "torch_geometric.transforms", "AddRandomWalkPE",
        lambda: through_geometric("AddRandomWalkPE", walk_length=STEPS),
        lambda build: build("rwse", NODES, dim=STEPS, edges=EDGES, steps=STEPS, learned=False)["table"], SINGLE,
        exact=returns, why="in float32",
    ),
    Case(
        "graphormer", "transformers", "transformers.models.deprecated.graphormer.modeling_graphormer",
        "GraphormerGraphAttnBias, GraphormerGraphNodeFeature", graphormer, our_graphormer, DOUBLE,
        why="in transformers before 5",
    ),
)  # fmt: skip
