"""Attention in tiles with an online softmax, forward and backward, with every term of the score, in O(N) memory.

    out_i = sum_j P_ij (v_j + rel_value[o]),   P_ij = exp(S_ij - lse_i),   lse_i = log sum_j exp(S_ij)

`score` defines S. Where keys have offsets of their own (`terms.key_query_offsets`), a block of queries computes S less
one number, its base. Without a dense mask, each query sees one interval of keys.

Forward. A task is one block of TILE_QUERIES queries of one head (`forward.forward_rows`). The block goes through its
tiles of keys from the nearest to the farthest. `forward.soften` keeps the maximum m_i and the sum l_i of each row so
far, and rescales what was summed before when the maximum grows. 4 D FLOP a cell.

Backward (FlashAttention-2; Dao 2023, algorithm 2). A task is one block of TILE_KEYS keys of one key head
(`backward.key_block_backward`). It goes through the blocks of queries of every head that reads it, recomputes P from
`lse`, and keeps dk and dv:

    dP = dout v^T (+ dout . rel_value),   dS = P (dP - delta),   delta_i = dout_i . out_i
    dv += P^T dout,   dk += dS^T q,   dq += dS k

10 D FLOP a cell. Several key blocks add to the same dq and to the same gradients of slots. They do so in the order of
the key blocks, each waiting for its ticket (`threads.task_counter`), so that the order of a sum does not depend on the
number of threads.

Skipping, first rule. It applies where the table of slots says of every term that it is `bounded`, so that
S_ij <= |s| |q_i| |k_j| + bias[j - i] (by Cauchy and Schwarz; rotations keep norms). For a tile J behind the queries'
own one, let K be the largest |k_j| up to J, o the largest offset that a row of the tile meets there, and T(o) = log sum
over o' <= o of exp(bias[o']). Then all keys up to J together contribute at most exp(|s| |q_i| K + T(o)) to row i, as no
offset is counted twice. Forward, J and all tiles beyond it are left out when |s| |q_i| K + T(o) <= m_i + log(tolerance
/ 2) for each row i. The sum l_i of exp(S_ij - m_i) is at least 1, because m_i is one of these scores, and m_i only
grows; so what is left out has at most half the weight `tolerance`. The same holds for tiles ahead of the queries' own
one, with sums over o' >= o; where there may be such tiles (no causal mask), the two sides share that half.

Where keys have offsets, T is the log of the sum of exp(key_offset) of the keys up to J; with a bias as well, T(o) plus
the largest offset of a key up to J. For rows with factors, |row_scale_i q_i| takes the place of |q_i|; for rows that
are mapped or in polar form, the norm is that of the result.

Skipping, second rule. A tile whose scores are known is left out when each score is at most m_i + log(tolerance / 2M).
There are at most M keys, so together they have at most the other half. Both rules together leave out at most the weight
`tolerance` of a row of the softmax, which changes out_i by at most 2 tolerance max|v|. The backward pass does the same
with lse_i, which is at least m_i. The norms are rounded up by 1 + 1e-3 and T by 1e-6 to cover their own rounding; T is
known for every CHUNK of offsets and taken at the chunk's far end.

NaN and infinity. A hidden cell has the weight 0, but in a product of a whole tile 0 times NaN is NaN. Forward, a block
of queries whose result holds NaN or infinity is computed a second time with care; backward, rows of partly hidden tiles
are checked first. Only tiles that are partly hidden and hold such numbers take the slow products of `nonfinite`. A
model (`alone`) does none of this.

Files:

    slots          the table of slots: axes, layout and gradient of each array
    inputs         sizes, flags and arrays of a call, and what one head reads of them
    workspace      the layout of a worker's scratch memory
    tile           the size of a tile, and sums over its cells
    visibility     which keys a query sees
    products       all that is linear in queries and keys; nonfinite: products that leave out cells of 0
    score, terms/  the score, its derivative, what may be left out; a file for each term
    dropout, sinks, bf16_panels, expand_relative_bias, split_softmax
                   dropped weights; sinks; packed operands of bfloat16 products; biases by offset; passes over parts of
                   the keys
    forward, backward
                   the tiles of one head; calls: all heads of a call (a model: `kernels.model.attention`)
    decode         few queries with few terms
    path/          the content of tiles with reflections between key and query (PaTH), and its gradients
    dape/          the network between the scores of all heads (DAPE)

In all of them `head` is what is read of one head, `terms` says whose slots (None in a call with neither slots, columns
nor dropout: nothing that these need is compiled then), `grads` is where the head's gradients go, and `tile`, `case` and
`scratch` are of the types in `inputs` and `workspace`.
"""
