"""FlexAttention: attention whose scores are changed by a function of the user, a score_mod, and hidden by a mask_mod.

A call goes through these modules:

1. `attention` checks the arguments, with PyTorch's types of errors.
2. `tracing` records a mod once, on scalars, as an expression (`expression`). `captured` finds the tensors that a mod
   captures, and remembers the expressions of functions that cannot have changed.
3. `form` reads the expression: factors and terms of the score, conditions that hide keys, a soft cap.
4. `plan` turns each part into an argument of `fastpe.torch.attention`. `grids` evaluates expressions, only over the
   indices that they depend on. `sight` finds which keys each query sees, also by a BlockMask (`block_mask`).
5. `rows` attends, where necessary by chunks of queries. What has no form is computed there by PyTorch.
"""
