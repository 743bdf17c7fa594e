"""FlexAttention: attention whose scores are changed by a function of the user, a score_mod, and hidden by a mask_mod.

`attention` has the public functions. A call goes through these modules:

1. `checks` checks the arguments, with PyTorch's types of errors. Under `torch.compile`, `compiled` makes an operator.
2. `tracing` calls a mod (a score_mod or mask_mod) once with scalars, and records its operations as an `expression`.
   `captured` finds the tensors that a mod captures, so that functions that cannot have changed are traced once.
3. `form` reads the expression: factors and terms of the score, conditions that hide keys, a soft cap.
4. `plan` turns each part into an argument of `fastpe.torch.attention`. `grids` evaluates expressions, only over the
   indices that they depend on. `sight` finds which keys each query sees, also by a BlockMask (`block_mask`).
5. `ways` chooses who computes the call: `rows` computes attention with the plan, or PyTorch if the score_mod has no
   such form. Both compute it by chunks of queries if necessary.
"""
