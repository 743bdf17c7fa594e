"""Attention in tiles with an online softmax, forward and backward, with every term of the score, in O(N) memory.

    out_i = sum_j P_ij (v_j + rel_value[o]),   P_ij = exp(S_ij - lse_i),   lse_i = log sum_j exp(S_ij)

`score` defines S. If keys have offsets (`terms.key_query_offsets`), one number, the base, is subtracted from all scores
of a block of queries. Without a dense mask, each query sees one interval of keys.

Forward. A task is one block of TILE_QUERIES queries of one head (`forward.forward_rows`). It processes its tiles of
keys from the nearest to the farthest. `forward.soften` keeps the maximum m_i and the sum l_i of each row so far, and
rescales the sums when the maximum grows. This takes 4 D FLOP per query and key.

Backward (FlashAttention-2; Dao 2023, algorithm 2). A task is one block of TILE_KEYS keys of one key head
(`backward.key_block_backward`). It processes all blocks of queries of every head that reads these keys, recomputes P
from `lse`, and accumulates dk and dv:

    dP = dout v^T (+ dout . rel_value),   dS = P (dP - delta),   delta_i = dout_i . out_i
    dv += P^T dout,   dk += dS^T q,   dq += dS k

This takes 10 D FLOP per query and key. Several key blocks add to the same dq and to the same gradients of slots. The
key blocks add in a fixed order: each waits for its ticket (`threads.task_counter`). So the order of a sum does not
depend on the number of threads.

Skipping, first rule (`score.bound`, `score.negligible`). It applies if all terms are `bounded` in the table of slots.
Then, with the scale s, S_ij <= |s| |q_i| |k_j| + bias[j - i] (by Cauchy and Schwarz; rotations keep norms). The
queries' tile is the tile of keys that contains the position of the block's last query. For this tile or a tile before
it, J, let K be the largest |k_j| of all keys up to the end of J, o the largest offset between a row and a key of J, and
T(o) the logarithm of the sum of exp(bias[o']) over all o' <= o. No two keys have the same offset from a row. So all
keys up to the end of J together add at most exp(|s| |q_i| K + T(o)) to the sum over j of exp(S_ij). In the forward
pass, J and all tiles beyond it are skipped if |s| |q_i| K + T(o) <= m_i + log(tolerance / 2) for each row i. The sum
l_i of exp(S_ij - m_i) is at least 1, because m_i is one of these scores, and m_i only grows. So the skipped keys have
at most the weight tolerance / 2. The same holds for tiles after the queries' tile, with sums over o' >= o. If there may
be such tiles (no causal mask), the keys skipped on either side have at most half of that weight.

With key offsets and no bias, T is the log of the sum of exp(key_offset) over the keys up to the end of J. With key
offsets and a bias, the largest key_offset of these keys is added to T(o). For queries with `row_scale`,
|row_scale_i q_i| replaces |q_i|. If rows are multiplied by `rotors` or converted to polar form, their norms are
computed afterwards.

Skipping, second rule (`score.faint`). A tile whose scores are already computed is skipped if each score is at most
m_i + log(tolerance / 2M). There are M keys, so all keys that this rule skips have at most the weight tolerance / 2.
Both rules together skip at most the weight `tolerance` of a row of the softmax, which changes out_i by at most
2 tolerance max|v| (with dropout, divided by 1 - dropout). The backward pass applies both rules with lse_i, which is at
least m_i, in place of m_i. To cover rounding errors, the norms are multiplied by 1 + 1e-3, and 1e-6 is added to T. T is
stored for every CHUNK of offsets; the value at the far end of the chunk is used.

NaN and infinity. A hidden key has the weight 0, but 0 times NaN is NaN, so a product of a whole tile would spread NaN.
In the forward pass, a block of queries whose result holds NaN or infinity is computed a second time, without such
products. In the backward pass, the rows of partly hidden tiles are checked first. Only tiles that are partly hidden and
hold NaN or infinity use the slow products of `nonfinite`. With `Case.alone`, as in models, whose rows are finite, none
of this is done.

Files:

    slots          the table of slots: axes, layout and gradient of each array
    inputs         sizes, flags and arrays of a call, and what one head reads of them
    workspace      the layout of a worker's scratch memory
    tile           the size of a tile, and sums over it
    visibility     which keys a query sees
    products       all that is linear in queries and keys
    nonfinite      products that leave out entries with weight 0
    score          the score, its derivative, bounds for skipping
    terms/         a file for each term of the score
    dropout        dropout of weights
    sinks          extra keys without a value
    bf16_panels    packed operands of bfloat16 products
    expand_relative_bias
                   expansion of arrays over clipped offsets
    split_softmax  weights for merging softmaxes over parts of the keys
    forward, backward
                   the tiles of one head
    calls          all heads of a call (a model: `kernels.model.attention`)
    decode         few queries with few terms
    path/          the content of tiles with reflections between key and query (PaTH), and its gradients
    dape/          the network over the scores of all heads (DAPE)

In all these files, `head` holds the arrays of one head, and `terms` says which sample and which head of a slot are read
(see `inputs.terms_of` for the calls in which it is None). `grads` holds the addresses of the head's gradients; `tile`,
`case` and `scratch` are of the types in `inputs` and `workspace`.
"""
