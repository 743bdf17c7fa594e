"""Attention in tiles (online softmax), forward and backward, with every slot of the score: O(N) memory.

    out_i = sum_j P_ij (v_j + rel_value[o]),   P_ij = exp(S_ij - lse_i),   lse_i = log sum_j exp(S_ij)

S as in `score`, less a number that is the same for a block of queries where keys have offsets (`key_query_offsets`).
Which keys a query sees is one interval of them, whatever masks there are.

Forward, one task is one block of TILE_QUERIES queries of one head. Its tiles of keys come from the nearest to the
farthest; a running maximum m_i and sum l_i of every row make exp harmless. 4 D FLOP a cell.

Backward (FlashAttention-2; Dao 2023, algorithm 2), one task is one key block of TILE_KEYS keys of one key head. It goes
through the blocks of queries of every head that reads it, makes P again from `lse`, and keeps dk and dv:

    dP = dout v^T (+ dout . rel_value),   dS = P (dP - delta),   delta_i = dout_i . out_i
    dv += P^T dout,   dk += dS^T q,   dq += dS k

10 D FLOP a cell. Several key blocks add to the same dq and to the same gradients of slots: they take turns, in the
order of the key blocks, so that sums have one order at any number of threads.

Skipping, first rule. Where `score.BOUNDED` names all terms, S_ij <= |s| |q_i| |k_j| + bias[j - i] (Cauchy and
Schwarz; rotations keep norms). Let a tile J lie behind the queries' own one, K be the largest |k_j| up to J, o the
largest offset that a row of the tile meets there, and T(o) = log sum over o' <= o of exp(bias[o']). Then of row i all
keys up to J have together at most exp(|s| |q_i| K + T(o)); no offset is counted twice. Forward, J and all tiles beyond
it are left out when |s| |q_i| K + T(o) <= m_i + log(tolerance / 2) for each row i: the sum l_i of exp(S_ij - m_i) is at
least 1, as m_i is one of these scores, and m_i only grows, so what is left out has at most half the weight `tolerance`.
Tiles ahead of the queries' own one likewise, with sums over o' >= o; where there may be such (no causal mask), the two
sides share that half.

Where keys have offsets, T is that of these: log of the sum of exp(key_offset) of the keys up to J; with a bias as well,
T(o) and the largest offset of a key up to J. Of rows with factors, |row_scale_i q_i| stands for |q_i|; of rows whose
channels were mapped or lifted (rotors, polar), the norm is that of what they became.

Second rule: a tile whose scores are known is left out when each is at most m_i + log(tolerance / 2M): of M keys at
most, such have together at most the other half. What is left out of a row has then at most the weight `tolerance` in
the softmax, which changes out_i by at most 2 tolerance max|v|. Backward the same with lse_i, which is at least m_i:
what is left out of any row of P sums up to at most `tolerance`. The computed norms are rounded up by 1 + 1e-3 and T by
1e-6 for their own rounding; T is known for every CHUNK of offsets and taken at the chunk's far end.

NaN and infinity. A hidden cell has the weight 0, but 0 times NaN is NaN in a product of a whole tile. Forward, a block
of queries that comes out with NaN or infinity is made a second time, carefully; backward, rows of partly hidden tiles
are looked through first. Only tiles that are partly hidden and hold such numbers take the slow products of `nonfinite`.
A model does none of this (`alone`).

Files: `inputs` sizes, flags and arrays, `workspace` a worker's memory, `tile` and `visibility` what all share;
`relative` and `products` what is linear in queries and keys, `nonfinite` products that leave out cells of 0,
`key_query_offsets` what keys and queries add by themselves, `contextual_positions` what depends on nearer keys, `score`
the rest of the score, its derivative, what may be left out, and how a term is added; `bf16_panels` keys and values as
bfloat16 products read them; `forward` and `backward` go through the tiles of one head, `calls` through heads, and for
the model `kernels.model.attention`; `split_softmax` has the weights of passes over parts of the keys. What reads a
head, or all, in a way of its own stands apart: `decode`, few queries with few terms; `dape.network` and its files,
scores that a network corrects; `path.forward` and its files, reflections between key and query. Throughout, `head` is
what is read of one head, `terms` the arrays of its terms but `bias` and columns (None of a call with neither slots,
columns nor dropout: what any of these needs is then not compiled), `grads` where its gradients go, `tile`, `case` and
`scratch` what their types in `inputs` and `workspace` say."""
