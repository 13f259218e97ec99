"""Whatever is edited, inserted, deleted, duplicated or swapped in a run folder is noticed.

The places are found by walking the documents, not from a list. A forger is given the best of means: seals, checksums
and fingerprints are made again after the edit wherever the file itself carries them.
"""

import copy
import json
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors import safe_open
from safetensors.numpy import save

import awavo
from awavo.cli.main import main
from awavo.config import stored_fingerprint
from awavo.errors import InputError, RunFolderError
from awavo.results.certificate_record import PROVENANCE, binding, read_record, what_is_wrong, why_not_shown, why_unbound
from awavo.results.store import (
    load_run,
    newest_checkpoint,
    read_config,
    read_json,
    read_table,
    seal_of,
    write_json,
    write_sealed,
    write_table,
)
from awavo.runs.certify import compare_records
from awavo.training.checkpoint import _digest, read_checkpoint


def other(value: Any) -> Any:
    """A value of the same kind that is not the same."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return value + 1
    return value + "x" if isinstance(value, str) else [value]


def edits(document: Any) -> Iterator[tuple[str, Any]]:
    """Every single edit of a JSON document: leaves changed; entries deleted, inserted, doubled and swapped."""

    def at(path, change):
        # Only what lies on the way is copied.
        edited = copy.copy(document)
        parent = edited
        for key in path:
            parent[key] = copy.copy(parent[key])
            parent = parent[key]
        change(parent)
        return edited

    def walk(path, node):
        where = ".".join(map(str, path))
        keys = list(node) if isinstance(node, dict) else range(len(node))
        for key in keys:
            place = f"{where}.{key}"
            yield f"{place} deleted", at(path, lambda parent, k=key: parent.pop(k))
            if isinstance(node[key], dict | list):
                yield from walk([*path, key], node[key])
            else:
                yield f"{place} edited", at(path, lambda p, k=key: p.__setitem__(k, other(p[k])))
            if isinstance(node, list):
                yield f"{place} doubled", at(path, lambda p, k=key: p.insert(k, p[k]))
        for first, second in zip(keys, list(keys)[1:], strict=False):
            if node[first] != node[second]:
                yield f"{where} {first} and {second} swapped", at(path, lambda p, a=first, b=second: _swap(p, a, b))
        grow = (lambda p: p.update(extra=1)) if isinstance(node, dict) else (lambda p: p.append(1))
        yield f"{where} grown", at(path, grow)

    yield from walk([], document)


def _swap(parent, first, second):
    parent[first], parent[second] = parent[second], parent[first]


@pytest.fixture
def folder(certified, tmp_path):
    copied = tmp_path / "cartpole"
    shutil.copytree(certified[0], copied)
    return copied


def refused(read) -> bool:
    """Whether reading ends with one line."""
    try:
        read()
    except RunFolderError as error:
        return len(str(error).splitlines()) == 1
    return False


@pytest.mark.bad_input
def test_every_edit_of_the_certificates_is_seen_by_their_seal(certified):
    folder = certified[0]
    stored, bound = read_record(folder), binding(folder, newest_checkpoint(folder))
    assert why_unbound(stored, bound) == []
    cases = 0
    for name, edited in edits(stored):
        assert what_is_wrong(edited) or why_unbound(edited, bound), name
        cases += 1
    assert cases > 1000


@pytest.mark.bad_input
def test_every_sealed_edit_of_the_certificates_is_found_by_making_them_again(folder, safety_only):
    """The record made again is that of the unedited one; of provenance nothing can be made again."""
    run = awavo.load(folder)
    stored = run.certify(episodes=60)
    assert run.recheck() == {}
    bound = binding(folder, newest_checkpoint(folder))
    for name, edited in edits({key: value for key, value in stored.items() if key not in (*PROVENANCE, "seal")}):
        forged = {**edited, **{key: stored[key] for key in PROVENANCE}}
        forged["seal"] = seal_of(forged)
        assert what_is_wrong(forged) or why_unbound(forged, bound) or compare_records(forged, stored), name


def test_a_sealed_edit_of_the_plan_is_found_by_following_it(folder, safety_only):
    run = awavo.load(folder)
    stored = run.certify(episodes=60)
    for change in ({"delta": 0.1}, {"seed": 7}, {"episodes": 61}, {"max_violation": 1.0}):
        write_sealed(folder / "certificates.json", {**stored, "plan": {**stored["plan"], **change}})
        assert "safety.seed_0" in run.recheck(), change


@pytest.mark.parametrize("change", [{"delta": 1e-320}, {"seed": 10**12}, {"batch": 10**9}, {"episodes": 10**9}])
def test_a_sealed_plan_that_nothing_could_follow_is_refused(folder, change):
    stored = json.loads((folder / "certificates.json").read_text())
    write_sealed(folder / "certificates.json", {**stored, "plan": {**stored["plan"], **change}})
    with pytest.raises(InputError, match="is out of range"):
        awavo.load(folder).recheck()


def test_a_copied_entry_with_another_verdict_is_neither_believed_nor_shown(folder, safety_only, capsys):
    """The attack that passed: a second entry of the same name put first, and a seed to deliver."""
    run = awavo.load(folder)
    run.problem = run.problem._replace(spec=run.problem.spec._replace(cost_limits=(0.5, 150.0)))
    stored = run.certify(episodes=60)
    assert stored["delivered_seed"] is None
    entry = next(c for c in stored["certificates"] if c["name"] == "safety.seed_0")
    forged = {
        **stored,
        "delivered_seed": 0,
        "certificates": [{**entry, "verdict": "supported"}, *stored["certificates"]],
    }
    for write in (write_json, write_sealed):
        write(folder / "certificates.json", forged)
        assert main(["certify", str(folder), "--recheck"]) == 1
        assert "stands there 2 times" in capsys.readouterr().out
        assert main(["report", str(folder)]) == 0
        page = (folder / "report.html").read_text()
        assert "Deliver" not in page
        assert "not bound to this run" in page
        capsys.readouterr()


def test_a_sealed_record_that_contradicts_itself_delivers_nothing(folder, safety_only, capsys):
    """Bound to the run and sealed again, but with a seed to deliver that is not certified, or with other counts."""
    run = awavo.load(folder)
    run.problem = run.problem._replace(spec=run.problem.spec._replace(cost_limits=(0.5, 150.0)))
    stored = run.certify(episodes=60)
    counts = {**stored["counts"], "policy": {**stored["counts"]["policy"], "supported": 2}}
    for forged, said in (({"delivered_seed": 0}, "safety is not certified"), ({"counts": counts}, "counts are not")):
        write_sealed(folder / "certificates.json", {k: v for k, v in {**stored, **forged}.items() if k != "seal"})
        assert main(["report", str(folder)]) == 0
        page = (folder / "report.html").read_text()
        assert "Deliver" not in page
        assert said in page


def test_a_field_that_stands_twice_is_refused(folder, capsys):
    for file, command in (("certificates.json", ["certify", "--recheck"]), ("config.json", ["evaluate"])):
        path = folder / file
        text = path.read_text()
        path.write_text(text.replace('"format"', '"format": 1, "format"', 1))
        assert main([command[0], str(folder), *command[1:]]) == 2
        assert "twice" in capsys.readouterr().err
        path.write_text(text)


@pytest.mark.bad_input
def test_every_edit_of_the_configuration_is_refused(folder):
    meta, notes = read_config(folder)
    assert notes == []
    cases = 0
    for name, edited in edits(meta):
        forged = {key: value for key, value in edited.items() if key != "seal"}
        if isinstance(forged.get("config"), dict):
            forged["fingerprint"] = stored_fingerprint(forged["config"])
        # As it is, and with seal and fingerprint made again: then the checkpoint knows better.
        for content in (edited, {**forged, "seal": seal_of(forged)}):
            if content == meta and list(content) == list(meta):
                continue
            write_json(folder / "config.json", content)
            assert refused(lambda: read_config(folder)), name
            cases += 1
    assert cases > 300


@pytest.mark.parametrize(
    "edit",
    [
        lambda m: m["spec"].update(cost_limits=[300.0, 300.0]),
        lambda m: m["config"].update(cost_limits=[300.0, 300.0]),
        lambda m: m["config"]["algo_options"].update(tolerance=50.0),
        lambda m: m["config"].update(seeds=1),
        lambda m: m["config"]["task_options"].update(horizon=5),
    ],
)
def test_commands_refuse_an_edited_configuration(folder, small_config, capsys, edit):
    meta = json.loads((folder / "config.json").read_text())
    edit(meta)
    write_json(folder / "config.json", meta)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for command in (["evaluate"], ["report"], ["certify", "--recheck"], ["certify"], ["export"], ["compare"]):
        assert main([command[0], str(folder), *command[1:]]) == 2
        err = capsys.readouterr().err
        assert "was edited after training" in err
        assert len(err.strip().splitlines()) == 1
    with pytest.raises(RunFolderError, match="was edited after training"):
        list(awavo.train_iter(small_config, folder))
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.bad_input
def test_every_edit_of_the_evaluation_is_refused(folder):
    awavo.load(folder).evaluate(20)
    stored = read_json(folder / "evaluation.json")
    assert load_run(folder).evaluation == {mode: stored[mode] for mode in ("greedy", "stochastic")}
    for name, edited in edits(stored):
        write_json(folder / "evaluation.json", edited)
        assert refused(lambda: load_run(folder)), name


def _checkpoint_edits(arrays):
    names = list(arrays)
    for number, (name, after) in enumerate(zip(names, [*names[1:], names[0]], strict=True)):
        array = arrays[name]
        changed = np.asarray(~array if array.dtype == bool else array + np.ones((), array.dtype))
        yield f"{name} edited", {**arrays, name: changed}
        if number % 4:  # all are alike to what follows
            continue
        yield f"{name} deleted", {n: a for n, a in arrays.items() if n != name}
        yield f"{name} doubled", {**arrays, f"{name}.copy": array}
        if arrays[after].tobytes() != array.tobytes():
            yield f"{name} and {after} swapped", {**arrays, name: arrays[after], after: array}
    yield "grown", {**arrays, "extra": np.zeros(1)}


def test_every_edit_of_the_checkpoint_is_found(folder):
    stored = read_record(folder)
    path = newest_checkpoint(folder)
    with safe_open(path, framework="numpy") as file:
        metadata = dict(file.metadata())
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    plain = {key: value for key, value in metadata.items() if key != "digest"}
    for name, edited in _checkpoint_edits(arrays):
        path.write_bytes(save(edited, metadata))
        assert refused(lambda: read_checkpoint(path)), name
        path.write_bytes(save(edited, {**plain, "digest": _digest(edited, plain)}))
        assert "another checkpoint" in str(why_unbound(stored, binding(folder, path))), name
    for key in plain:
        edited = {**plain, key: plain[key] + "1"}
        path.write_bytes(save(arrays, {**edited, "digest": metadata["digest"]}))
        assert refused(lambda: read_checkpoint(path)), key


def test_a_renamed_checkpoint_is_refused(folder):
    path = newest_checkpoint(folder)
    renamed = path.rename(path.with_name("step-000000099999.safetensors"))
    assert refused(lambda: read_checkpoint(renamed))


def _table_edits(table):
    for name in table.columns:
        column = table[name]
        filled = column.fill_null(0)
        yield (
            f"{name} edited",
            table.with_columns(
                (filled + (filled.arg_max() == pl.arange(0, table.height, eager=True)).cast(filled.dtype)).alias(name)
            ),
        )
        yield f"{name} deleted", table.drop(name)
        yield f"{name} doubled", table.with_columns(column.alias(f"{name}_copy"))
    for first, second in zip(table.columns, table.columns[1:], strict=False):
        yield f"{first} and {second} swapped", table.rename({first: second, second: first})
    yield "a row doubled", pl.concat([table.head(1), table])
    yield "a row deleted", table.slice(1)
    yield "rows swapped", table.reverse()


@pytest.mark.parametrize("name", ["metrics", "episodes"])
def test_every_edit_of_a_table_is_found(folder, name):
    stored, path = read_record(folder), folder / f"{name}.parquet"
    table, summed = read_table(path)
    assert summed
    for edit, edited in _table_edits(table):
        write_table(path, edited)  # with a checksum that fits
        assert f"{name}.parquet is not the one" in str(why_not_shown(folder, stored)), edit


@pytest.mark.parametrize("name", ["metrics", "episodes"])
def test_every_flipped_bit_of_a_table_is_refused(folder, name):
    path = folder / f"{name}.parquet"
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    # Random ones, and every bit of the checksum and of what marks it.
    mark = content.rindex(b"awavo-sha256")
    bits = [*rng.integers(8 * len(content), size=300), *range(8 * mark, 8 * (mark + 80))]
    for number, bit in enumerate(bits):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        assert refused(lambda: read_table(path, summed=True)), bit
        # The whole folder takes ten times as long: one bit of each byte of the checksum, and as many of the others.
        assert number % 8 or refused(lambda: load_run(folder)), bit


def test_certificates_of_another_run_are_not_shown(folder, capsys):
    """After more training, or beside another checkpoint, nothing is to be delivered."""
    assert why_not_shown(folder, read_record(folder)) == []
    path = newest_checkpoint(folder)
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    assert main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text()
    assert "made for another checkpoint" in page
    assert "Deliver" not in page


def test_an_old_folder_loads_and_says_what_cannot_be_vouched_for(certified, folder, capsys):
    """Before this there were no seals and no checksums, and certificates had format 1."""
    meta = {key: value for key, value in read_config(folder)[0].items() if key != "seal"}
    write_json(folder / "config.json", meta)
    for name in ("metrics", "episodes"):
        read_table(folder / f"{name}.parquet")[0].write_parquet(folder / f"{name}.parquet")
    _unseal_checkpoint(newest_checkpoint(folder))
    stored = read_record(folder)
    old = {key: value for key, value in stored.items() if key not in ("seal", "bound")}
    counts = {key: sum(part[key] for part in stored["counts"].values()) for key in stored["counts"]["policy"]}
    write_json(folder / "certificates.json", {**old, "format": 1, "counts": counts})
    run = awavo.load(folder)
    assert len(run.notes) == 1
    assert "no seal" in run.notes[0]
    assert main(["report", str(folder)]) == 0
    said = capsys.readouterr().err
    assert said.count("note: ") == 3
    page = (folder / "report.html").read_text()
    assert "carries no seal" in page
    assert "an older awavo wrote them" in page.lower()
    assert "Deliver" not in page
    assert main(["certify", str(folder), "--recheck"]) == 2
    assert "format 1" in capsys.readouterr().err


def _unseal_checkpoint(path):
    with safe_open(path, framework="numpy") as file:
        metadata = {key: value for key, value in file.metadata().items() if key not in ("digest", "config")}
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    path.write_bytes(save(arrays, {**metadata, "digest": _digest(arrays, metadata)}))


def test_removing_the_seal_does_not_make_a_folder_old(folder):
    meta = {key: value for key, value in read_config(folder)[0].items() if key != "seal"}
    meta["spec"] = {**meta["spec"], "cost_limits": [300.0, 300.0]}
    write_json(folder / "config.json", meta)
    with pytest.raises(RunFolderError, match="another seal"):
        awavo.load(folder)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"format": 2}',
        '{"format": 1}',
        '{"format": 1, "certificates": [{"name": 3}]}',
        "[" * 9999,
    ],
)
def test_malformed_certificates_get_one_line(folder, capsys, text):
    (folder / "certificates.json").write_text(text)
    for command in (["report", str(folder)], ["certify", str(folder), "--recheck"]):
        assert main(command) == 2
        err = capsys.readouterr().err.strip()
        assert len(err.splitlines()) == 1
        assert "certificates.json" in err


@pytest.mark.bad_input
def test_certificates_malformed_inside_get_one_line(folder, capsys):
    """Sealed and bound, but without what the page shows."""
    stored = read_record(folder)
    for part, value in (("details", {}), ("evidence", [3]), ("assumptions", [{"text": 1}])):
        entries = [{**entry, part: value} for entry in stored["certificates"]]
        write_sealed(
            folder / "certificates.json", {k: v for k, v in {**stored, "certificates": entries}.items() if k != "seal"}
        )
        assert main(["report", str(folder)]) == 2, part
        err = capsys.readouterr().err.strip()
        assert "is damaged" in err
        assert len(err.splitlines()) == 1
