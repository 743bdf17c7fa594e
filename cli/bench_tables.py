"""The measurements of `fastpe bench` as tables, with goals and notes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .tables import Table

_BLAS = {"torch": "MKL (PyTorch)", "numpy": "OpenBLAS (NumPy)"}


def tables_of(name: str, measured: Mapping[str, Any]) -> list[Table]:
    """Return the tables of one measurement of `fastpe bench`, with notes on disturbances of the machine."""
    from fastpe.benchmarks.disturbance import signs_in

    *tables, last = _TABLES[name](measured)
    disturbed = [f"the machine was disturbed: {sign}" for sign in signs_in(measured)]
    return [*tables, replace(last, notes=[*last.notes, *disturbed])]


# ---------------------------------------------------------------------------------------------------------------------
# Figures


def _verdict(figure: Mapping[str, Any], show: Callable[[float], str]) -> str:
    """Return a figure, with its goal if it has one."""
    text = show(figure["value"])
    if figure.get("goal") is None:
        return text
    sign = "<=" if figure["at_most"] else ">="
    return f"{text} ({sign} {show(figure['goal']).strip()}: {'met' if figure['met'] else 'MISSED'})"


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x"


def _exact_times(ratio: float) -> str:
    return f"{ratio:.3f}x"


def _faster(peer: Mapping[str, Any]) -> str:
    return f"{peer['ms']:.2f} = {_verdict(peer['times'], _times)}"


def _closer(peer: Mapping[str, Any]) -> str:
    return f"{peer['error']:.1e}, ours {_verdict(peer['ratio'], _times)}"


# ---------------------------------------------------------------------------------------------------------------------
# Peers


def _present(rows: Iterable[Mapping[str, Any]], known: Iterable[str]) -> list[str]:
    """Return the peers that appear in any row."""
    there = {name for row in rows for name in row["peers"]}
    return [name for name in known if name in there]


def _beside(row: Mapping[str, Any], present: Sequence[str], show: Callable[[Mapping[str, Any]], str]) -> list[str]:
    """Return a cell for each peer."""
    peers = [row["peers"].get(name, {"absent": ""}) for name in present]
    return ["-" if "absent" in peer else show(peer) for peer in peers]


def _absences(rows: Iterable[Mapping[str, Any]], names: Mapping[str, str]) -> list[str]:
    """Return the distinct reasons why peers are missing."""
    found = {(name, peer["absent"]) for row in rows for name, peer in row["peers"].items() if "absent" in peer}
    return [f"{names[name]}: {why}" for name, why in sorted(found)]


def _sgemm(peak: Mapping[str, Any]) -> str:
    return f"{peak['own_gflops']:.0f} GFLOP/s in cache (fastpe), {peak['blas_gflops']:.0f} at order 1024 (NumPy's BLAS)"


# ---------------------------------------------------------------------------------------------------------------------
# Tables


def _step(measured: Mapping[str, Any]) -> list[Table]:
    from fastpe.benchmarks.step import PEERS

    rows = measured["rows"]
    present = _present(rows, PEERS)
    head = ["model", "threads", "fastpe", "of the sgemm peak", *(PEERS[name] for name in present)]
    lines, notes = [], [f"sgemm peak, threads: {peak['threads']}: {_sgemm(peak)}" for peak in measured["sgemm"]]
    for row in rows:
        own, where = row["fastpe"], (row["model"], str(row["threads"]))
        lines.append(
            [*where, f"{own['ms']:.2f}", _verdict(own["of_peak"], _percent), *_beside(row, present, _faster)]
        )  # fmt: skip
        if (share := own["of_peak_masked_too"]) is not None:
            notes.append(
                f"{', threads: '.join(where)}: {_percent(share)} of the peak if masked scores, which peers compute, "
                "count too"
            )
    about = "loss, all gradients, Adam; float32; milliseconds of the fastest step; FLOPs of the model as defined"
    return [Table("Training step", about, head, lines, [*notes, *_absences(rows, PEERS)])]


def _encodings(measured: Mapping[str, Any]) -> list[Table]:
    lines = [
        [
            row["encoding"], ", ".join(row["slots"]), f"{row['ms']:.2f}", _verdict(row["times"], _times),
            f"{row['fill_us']:.0f}", "-" if row["pull_us"] is None else f"{row['pull_us']:.0f}",
        ]
        for row in measured["rows"]
    ]  # fmt: skip
    head = ("encoding", "slots", "ms", "relative to no encoding", "fill, us", "pull, us")
    notes = ["fill and pull are part of the step if the encoding learns; otherwise the slots are filled once"]
    return [Table("Encodings", "the fastest step of the paper's model, one thread", head, lines, notes)]


def _attention(measured: Mapping[str, Any]) -> list[Table]:
    from fastpe.benchmarks.attention import PEERS

    rows, errors = measured["beside"], measured["errors"]
    present = _present(rows, PEERS)
    names = [PEERS[name] for name in present]
    about = f"float32, threads: {measured['threads']}; milliseconds of the fastest call"
    timed = _timed(rows, present)
    off = [[row["case"], row["result"], f"{row['error']:.1e}", *_beside(row, present, _closer)] for row in errors]
    return [
        Table("Attention", about, ["", "N", "", "fastpe", *names], timed, _absences(rows, PEERS)),
        Table("Largest error", "against float64, relative to the largest entry", ["", "", "fastpe", *names], off),
        _of_peak(measured["peak"]),
        _terms(measured["terms"]),
        _long(measured["long"]),
    ]


def _timed(rows: Iterable[Mapping[str, Any]], present: Sequence[str]) -> list[list[str]]:
    return [
        [row["case"], f"{row['length']:,}", row["part"], f"{row['ms']:.2f}", *_beside(row, present, _faster)]
        for row in rows
    ]


def _of_peak(peak: Mapping[str, Any]) -> Table:
    lines = [
        [
            f"{row['length']:,}{', causal' * row['causal']}", row["part"], f"{row['ms']:.2f}", f"{row['gflops']:.0f}",
            _verdict(row["of_peak"], _percent),
        ]
        for row in peak["rows"]
    ]  # fmt: skip
    head = ("N", "", "ms", "GFLOP/s", "of the sgemm peak")
    return Table("Share of the sgemm peak", f"over unmasked cells; {_sgemm(peak)}", head, lines)


def _terms(rows: Sequence[Mapping[str, Any]]) -> Table:
    lines = [
        [row["term"], row["part"], f"{row['ms']:.2f}", _verdict(row["times"], _exact_times) if row["times"] else ""]
        for row in rows
    ]
    about = f"causal, N {rows[0]['length']:,}, no tiles skipped"
    return Table("Position terms", about, ("term", "", "ms", "relative to no term"), lines)


def _long(measured: Mapping[str, Any]) -> Table:
    notes = []
    for row in measured["rows"]:
        memory = row["why"] if row["extra_mib"] is None else _verdict(row["extra_mib"], lambda mib: f"{mib:.0f} MiB")
        notes.append(
            f"N {row['length']:,}, one head, slope {row['slope']}: {row['seconds']:.2f} s, "
            f"memory beyond inputs and outputs {memory}"
        )
    skipping = measured["skipping"]
    notes.append(
        f"N {skipping['length']:,}, eight slopes: {skipping['seconds']:.2f} s, without skipping "
        f"{skipping['every_seconds']:.2f} s = {_verdict(skipping['times'], _times)}"
    )
    return Table("Long", "causal ALiBi, forward and backward", notes=notes)


def _frameworks(measured: Mapping[str, Any]) -> list[Table]:
    from fastpe.benchmarks.frameworks import PEERS

    rows, features = measured["beside"], measured["features"]
    present = _present(rows, PEERS)
    about = f"float32, threads: {measured['threads']}; milliseconds of the fastest call, in PyTorch"
    head = ["", "N", "", "fastpe", *(PEERS[name] for name in present)]
    notes = [f"{case}: {why}" for case, why in measured["absent"].items()]
    priced = [
        [row["feature"], row["part"], f"{row['ms']:.2f}", "" if row["times"] is None else _times(row["times"])]
        for row in features
    ]
    alone = f"causal, N {features[0]['length']:,}, no tiles skipped except outside the window, in NumPy"
    return [
        Table("Frameworks", about, head, _timed(rows, present), [*notes, *_absences(rows, PEERS)]),
        _decoding(measured["decoding"], measured["threads"]),
        Table("Features", alone, ("", "", "ms", "relative to no feature"), priced),
    ]


def _decoding(measured: Mapping[str, Any], threads: int) -> Table:
    """Return a table with a row for each case and a column for each number of keys."""
    lines: dict[str, list[str]] = {}
    for row in measured["rows"]:
        lines.setdefault(row["case"], [row["case"]]).append(f"{row['us']:.1f}: {_verdict(row['sdpa'], _times)}")
    lengths = dict.fromkeys(row["length"] for row in measured["rows"])
    about = (
        f"float32, threads: {threads}; microseconds of fastpe's fastest call in PyTorch, then SDPA's time relative to "
        "it. SDPA gets a dense mask of floats if it has no such argument"
    )
    head, absent = ["keys", *(f"{length:,}" for length in lengths)], measured["absent"]
    notes = [] if absent is None else [f"one query and a cache: {absent}"]
    return Table("One query and a cache", about, head, list(lines.values()), notes)


def _gemm(measured: Mapping[str, Any]) -> list[Table]:
    present = [name for name in _BLAS if name not in measured["absent"]]
    head = ["model", "product", "m x depth x n", "fastpe", *(_BLAS[name] for name in present), "ratio to the faster"]
    lines = []
    for row in measured["rows"]:
        shape = f"{row['m']}{'t' * row['a_transposed']} x {row['depth']} x {row['n']}{'t' * row['b_transposed']}"
        rates = [f"{row['gflops'][name]:.0f}" for name in ("fastpe", *present)]
        fused = f"{row['gflops']['fused']:.0f} {row['fused']}" if row["fused"] else ""
        lines.append([row["model"], row["product"], shape, *rates, _verdict(row["ratio"], _percent), fused])
    notes = ["t: transposed operand. The cost of calling a peer from Python is subtracted from its time."]
    notes += [f"{_BLAS[name]}: {why}" for name, why in measured["absent"].items()]
    about = "on one sequence, one thread, in cache; GFLOP/s of the fastest call"
    return [Table("Products of the step", about, [*head, "fused, as in the step"], lines, notes)]


def _tables(measured: Mapping[str, Any]) -> list[Table]:
    lines = [
        [
            row["encoding"], f"{row['ms']:.2f}", f"{row['gbytes_per_s']:.2f}", _verdict(row["of_write"], _percent),
            "-" if row["times"] is None else _verdict(row["times"], _times),
        ]
        for row in measured["rows"]
    ]  # fmt: skip
    about = (
        f"tables of ({measured['length']:,}, {measured['dim']}), biases of {measured['heads']} heads; float32, in "
        "place, one thread, fastest call"
    )
    head = ("encoding", "ms", "GB/s", "of the write bandwidth", "usual NumPy code takes")
    notes = [f"write bandwidth, one thread: {measured['write_gbytes_per_s']:.1f} GB/s"]
    return [Table("Tables", about, head, lines, notes)]


def _scaling(measured: Mapping[str, Any]) -> list[Table]:
    threads, notes = measured["threads"], []
    if measured["scaling"] is not None:
        notes.append(
            f"speedup of {threads} threads over 1: step {_times(measured['step'])}, sgemm "
            f"{_times(measured['sgemm'])}; the first divided by the second: {_verdict(measured['scaling'], _times)}"
        )
    else:
        notes.append("scaling is not measured on one thread")
    notes += [
        f"results that are bitwise equal for any number of threads cost {_verdict(figure, _times)} the time without "
        f"this guarantee, threads: {count}"
        for count, figure in measured["fixed"].items()
    ]
    if measured["busy"] is not None:
        busy = _verdict(measured["busy"], _times)
        notes.append(f"next to a busy process, the median step takes {busy} the undisturbed step on 1 thread")
    return [Table("Scaling of the step", f"model {measured['model']}", notes=notes)]


_TABLES: Mapping[str, Callable[[Mapping[str, Any]], list[Table]]] = {
    "step": _step, "encodings": _encodings, "attention": _attention, "frameworks": _frameworks, "gemm": _gemm,
    "tables": _tables, "scaling": _scaling,
}  # fmt: skip
