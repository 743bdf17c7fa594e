"""Attention in tiles with an online softmax, forward and backward, with every term of the score, in O(N) memory.

    out_i = sum_j P_ij (v_j + rel_value[o]),   P_ij = exp(S_ij - lse_i),   lse_i = log sum_j exp(S_ij)

`score` defines S. If keys have offsets (`terms.key_query_offsets`), a block of queries computes S minus one number, its
base. Without a dense mask, each query sees one interval of keys.

Forward. A task is one block of TILE_QUERIES queries of one head (`forward.forward_rows`). It processes its tiles of
keys from the nearest to the farthest. `forward.soften` keeps the maximum m_i and the sum l_i of each row so far, and
rescales the sums when the maximum grows. This takes 4 D FLOP per query and key.

Backward (FlashAttention-2; Dao 2023, algorithm 2). A task is one block of TILE_KEYS keys of one key head
(`backward.key_block_backward`). It processes the blocks of queries of every head that reads it, recomputes P from
`lse`, and accumulates dk and dv:

    dP = dout v^T (+ dout . rel_value),   dS = P (dP - delta),   delta_i = dout_i . out_i
    dv += P^T dout,   dk += dS^T q,   dq += dS k

This takes 10 D FLOP per query and key. Several key blocks add to the same dq and to the same gradients of slots. They
do so in the order of the key blocks, each waiting for its ticket (`threads.task_counter`), so that the order of a sum
does not depend on the number of threads.

Skipping, first rule. It applies if all terms are `bounded` in the table of slots, so that
S_ij <= |s| |q_i| |k_j| + bias[j - i] (by Cauchy and Schwarz; rotations keep norms). For a tile J before the queries'
tile, let K be the largest |k_j| up to J, o the largest offset between a row and the tile, and T(o) = log sum over
o' <= o of exp(bias[o']). Then all keys up to J together contribute at most exp(|s| |q_i| K + T(o)) to row i, as no
offset is counted twice. In the forward pass J and all tiles beyond it are skipped if |s| |q_i| K + T(o) <= m_i +
log(tolerance / 2) for each row i. The sum l_i of exp(S_ij - m_i) is at least 1, because m_i is one of these scores, and
m_i only grows; so the skipped keys have at most half the weight `tolerance`. The same holds for tiles after the
queries' tile, with sums over o' >= o; if there may be such tiles (no causal mask), the two sides share that half.

With key offsets and no bias, T is the log of the sum of exp(key_offset) over the keys up to J. With key offsets and a
bias, the largest key_offset of these keys is added to T(o). For queries with factors, |row_scale_i q_i| replaces |q_i|.
For rows that are mapped or in polar form, the norm is the norm of the result.

Skipping, second rule. A tile whose scores are known is skipped if each score is at most m_i + log(tolerance / 2M).
There are at most M keys, so together they have at most the other half. Both rules together skip at most the weight
`tolerance` of a row of the softmax, which changes out_i by at most 2 tolerance max|v|. The backward pass does the same
with lse_i, which is at least m_i. The norms are rounded up by 1 + 1e-3 and T by 1e-6 to cover their rounding errors. T
is stored for every CHUNK of offsets; the value at the far end of the chunk is used.

NaN and infinity. A hidden key has the weight 0, but in a product of a whole tile 0 times NaN is NaN. In the forward
pass, a block of queries whose result holds NaN or infinity is computed a second time, avoiding such products; in the
backward pass, rows of partly hidden tiles are checked first. Only tiles that are partly hidden and hold such numbers
use the slow products of `nonfinite`. A model (`alone`) does none of this.

Files:

    slots          the table of slots: axes, layout and gradient of each array
    inputs         sizes, flags and arrays of a call, and what one head reads of them
    workspace      the layout of a worker's scratch memory
    tile           the size of a tile, and sums over it
    visibility     which keys a query sees
    products       all that is linear in queries and keys; nonfinite: products that ignore entries with weight 0
    score, terms/  the score, its derivative, bounds for skipping; a file for each term
    dropout, sinks, bf16_panels, expand_relative_bias, split_softmax
                   dropped weights; sinks; packed operands of bfloat16 products; biases by offset; weights of passes
                   over parts of the keys
    forward, backward
                   the tiles of one head; calls: all heads of a call (a model: `kernels.model.attention`)
    decode         few queries with few terms
    path/          the content of tiles with reflections between key and query (PaTH), and its gradients
    dape/          the network between the scores of all heads (DAPE)

In all of them `head` holds the arrays of one head, and `terms` selects the slots (None in a call with neither slots,
columns nor dropout, for which no code for these is compiled). `grads` holds the addresses of the head's gradients;
`tile`, `case` and `scratch` are of the types in `inputs` and `workspace`.
"""
