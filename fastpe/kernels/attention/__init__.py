"""Attention in tiles (online softmax), forward and backward, with every slot of the score: O(N) memory.

    out_i = sum_j P_ij (v_j + rel_value[o]),   P_ij = exp(S_ij - lse_i),   lse_i = log sum_j exp(S_ij)

S as in `cells` and `bands`. Which keys a query sees is one interval of them, whatever masks there are.

Forward, one task is one block of TILE_QUERIES queries of one head. Its tiles of keys come from the nearest to the
farthest; a running maximum m_i and sum l_i of every row make exp harmless. 4 D FLOP a cell.

Backward (FlashAttention-2; Dao 2023, algorithm 2), one task is one strip of TILE_KEYS keys of one key head. It goes
through the blocks of queries of every head that reads it, makes P again from `lse`, and keeps dk and dv:

    dP = dout v^T (+ dout . rel_value),   dS = P (dP - delta),   delta_i = dout_i . out_i
    dv += P^T dout,   dk += dS^T q,   dq += dS k

10 D FLOP a cell. Several strips add to the same dq and to the same gradients of slots: they take turns, in the order of
the strips, so that sums have one order at any number of threads.

Skipping. Where the score is s q.k + bias alone, S_ij <= |s| |q_i| max_J |k_j| + max_tile bias =: U_i for all keys j
of a tile J (Cauchy and Schwarz; rotations keep norms). Forward, a tile is left out when M exp(U_i - m_i) <= tolerance
for each of its rows: as l_i >= exp(m_i - m_i) = 1 from the row's first visible key on and m_i only grows, all that is
left out of row i has together at most the weight `tolerance` in the softmax, which changes out_i by at most 2
tolerance max|v|. Backward, likewise with lse_i, which is at least m_i: what is left out of any row of P sums up to at
most `tolerance`. The computed norms are rounded up by 1 + 1e-3 for their own rounding.

Files: `layout` sizes and memory; `bands` terms with an array over offsets of vectors; `cells` the other terms; `scores`
puts them together; `forward` and `backward` are the passes.
"""
