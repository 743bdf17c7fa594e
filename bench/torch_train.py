"""The paper's whole training in PyTorch eager, the peer of `fastpe train --encoding wavelet`.

    python bench/torch_train.py [--threads 2] [--epochs 20]

The model, table, numbers of sequences, batches and test lengths are the same. PyTorch's generator draws the data.
"""

import argparse
import time

import torch
from peers import torch_forward, torch_weights

import fastpe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    start = time.perf_counter()
    model = fastpe.Transformer(fastpe.ModelConfig("wavelet"))
    weights = torch_weights(model)
    tables = {n: {"table": torch.tensor(model.slots(n)["table"])} for n in (50, 100, 200)}
    optimiser = torch.optim.Adam(weights.values(), lr=1e-3)
    x = torch.randn(10_000, 50)
    y = x.cumsum(1)
    for epoch in range(arguments.epochs):
        total = 0.0
        for rows in torch.randperm(len(x)).split(32):
            loss = torch.nn.functional.mse_loss(torch_forward(model.config, weights, tables[50], x[rows]), y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.item() * len(rows)
        print(f"epoch {epoch + 1} loss {total / len(x):.6g}")
    for length in (50, 100, 200):
        with torch.no_grad():
            test = torch.randn(1000, length)
            error = torch.nn.functional.mse_loss(
                torch_forward(model.config, weights, tables[length], test), test.cumsum(1)
            )
        print(f"N {length} mse {error.item():.6g}")
    print(f"seconds {time.perf_counter() - start:.2f}")


if __name__ == "__main__":
    main()
