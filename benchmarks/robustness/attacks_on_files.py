"""Attacks by files and folders: what was forged, damaged or made to exhaust memory, and the fix taken out.

Names say the attack. A mutant is a text in `src/awavo`, what is there without the fix, and the tests that must fail.
"""

from __future__ import annotations

from mutation_check import Mutant

__all__ = ["ATTACKS"]

FORGERY = "tests/runs/test_forgery.py::"
RECORD = "tests/explain/test_record.py::"
ULOG = "tests/explain/test_ulog.py::"
EXPORT = "tests/deploy/test_export.py::"
FILES = "tests/test_files.py::"
CERTIFICATES = "results/certificate_record.py"
STORE = "results/store.py"

ATTACKS = {
    # Forged certificates.
    "certificates: an entry copied with another verdict": Mutant(
        CERTIFICATES,
        "for name, number in names.items() if number > 1]",
        "for name, number in names.items() if number > 99]",
        FORGERY + "test_a_copied_entry_with_another_verdict_is_neither_believed_nor_shown",
    ),
    "certificates: a seed to deliver that is not certified": Mutant(
        CERTIFICATES,
        'if seed is not None and (f"safety.seed_{seed}", "supported") not in pairs:',
        "if False:",
        FORGERY + "test_a_sealed_record_that_contradicts_itself_delivers_nothing",
    ),
    "certificates: counts of other certificates": Mutant(
        CERTIFICATES,
        'if content["counts"] != count_verdicts(pairs):',
        "if False:",
        FORGERY + "test_a_sealed_record_that_contradicts_itself_delivers_nothing",
    ),
    "certificates: any field edited": Mutant(
        CERTIFICATES,
        'if content["seal"] != seal_of(content):',
        "if False:",
        FORGERY + "test_every_edit_of_the_certificates_is_seen_by_their_seal",
    ),
    "certificates: any field edited and sealed again": Mutant(
        "runs/certify.py",
        "found = {name: differences(stored.get(name, nothing), fresh.get(name, nothing), name) for name in fields}",
        "found = {}",
        FORGERY + "test_every_sealed_edit_of_the_certificates_is_found_by_making_them_again",
    ),
    "certificates: entries swapped and sealed again": Mutant(
        "runs/certify.py",
        "if names[0] != names[1] and set(names[0]) == set(names[1]):",
        "if False:",
        FORGERY + "test_every_sealed_edit_of_the_certificates_is_found_by_making_them_again",
    ),
    "certificates: those of another checkpoint": Mutant(
        CERTIFICATES,
        "if name in stored and stored[name] != bound.get(name)]",
        "if False]",
        FORGERY + "test_certificates_of_another_run_are_not_shown",
    ),
    "certificates: shown though bound to nothing": Mutant(
        "results/certificates.py",
        "reasons = why_not_shown(path, content)",
        "reasons = []",
        FORGERY + "test_certificates_of_another_run_are_not_shown",
    ),
    "certificates: a plan that nothing could follow": Mutant(
        "runs/certify.py",
        'check_range("batch", plan.batch, 1, BATCH)',
        "pass",
        FORGERY + "test_a_sealed_plan_that_nothing_could_follow_is_refused",
    ),
    "certificates: a field that stands there twice": Mutant(
        STORE, "if len(content) < len(pairs):", "if False:", FORGERY + "test_a_field_that_stands_twice_is_refused"
    ),
    "certificates: malformed": Mutant(
        CERTIFICATES, "    if wrong:\n", "    if False:\n", FORGERY + "test_malformed_certificates_get_one_line"
    ),
    "certificates: malformed inside": Mutant(
        "results/certificates.py",
        "except (KeyError, TypeError, ValueError, AttributeError, IndexError, StopIteration, TemplateError) as error:",
        "except ZeroDivisionError as error:",
        FORGERY + "test_certificates_malformed_inside_get_one_line",
    ),
    # Edited configurations, checkpoints and tables.
    "configuration: limits edited": Mutant(
        STORE,
        'if "seal" in meta and meta["seal"] != seal_of(meta):',
        "if False:",
        FORGERY + "test_every_edit_of_the_configuration_is_refused",
    ),
    "configuration: its fingerprint removed": Mutant(
        STORE,
        'if meta.get("fingerprint") != stored_fingerprint(meta["config"]):',
        "if False:",
        "tests/runs/test_trust.py::test_a_folder_without_its_fingerprint_is_refused",
    ),
    "configuration: its seal removed": Mutant(
        STORE,
        'if named and named != meta.get("seal"):',
        "if False:",
        FORGERY + "test_removing_the_seal_does_not_make_a_folder_old",
    ),
    "evaluation: any field edited": Mutant(
        STORE,
        'if (sealed or "seal" in content) and content.get("seal") != seal_of(content):',
        "if False:",
        FORGERY + "test_every_edit_of_the_evaluation_is_refused",
    ),
    "tables: a bit flipped": Mutant(
        STORE,
        "if hashlib.sha256(content[:at] + _NO_SUM + content[at + 64 :]).hexdigest().encode() != found[1]:",
        "if False:",
        FORGERY + "test_every_flipped_bit_of_a_table_is_refused",
    ),
    "tables: the checksum removed": Mutant(
        STORE, "    elif summed:\n", "    elif False:\n", FORGERY + "test_every_flipped_bit_of_a_table_is_refused"
    ),
    "checkpoint: an array edited": Mutant(
        "training/checkpoint.py",
        "if stated != _digest(arrays, metadata):",
        "if False:",
        FORGERY + "test_every_edit_of_the_checkpoint_is_found",
    ),
    # Exports.
    "export: a program that calls code outside of itself": Mutant(
        "deploy/program_check.py",
        'if strange := sorted(set(found["targets"]) - TARGETS):',
        "if strange := []:",
        EXPORT + "test_a_program_that_calls_code_outside_is_refused",
    ),
    "export: a program that cannot be read": Mutant(
        "deploy/export.py",
        "if reason := check_program(content):",
        "if reason := None:",
        EXPORT + "test_a_damaged_program_with_the_right_sum_is_refused",
    ),
    "export: a program whose reader hangs": Mutant(
        "deploy/program_check.py",
        "capture_output=True, timeout=SECONDS)",
        "capture_output=True)",
        EXPORT + "test_a_reader_that_dies_or_hangs_does_so_in_its_own_process[hang]",
    ),
    # Small files that exhaust memory.
    "log: times a year apart": Mutant(
        "explain/ulog.py",
        "if end - start > LONGEST_SECONDS:",
        "if False:",
        ULOG + "test_times_a_year_apart_take_no_memory",
    ),
    "log: times an hour apart": Mutant(
        "explain/ulog.py", "if rate < LEAST_HZ:", "if False:", ULOG + "test_times_a_year_apart_take_no_memory"
    ),
    "log: larger than what is read": Mutant(
        "explain/ulog_file.py",
        "if path.stat().st_size > MAX_BYTES:",
        "if False:",
        ULOG + "test_a_large_file_is_refused_unread",
    ),
    "record: a decision of number 10^15": Mutant(
        "explain/record.py",
        "not isinstance(number, int) or not 0 <= number < MAX_DECISIONS:",
        "not isinstance(number, int):",
        RECORD + "test_an_index_without_end_takes_no_memory",
    ),
    "record: 10^15 planned steps": Mutant(
        "explain/record.py",
        "known[-1] < planned <= MAX_DECISIONS else",
        "known[-1] < planned else",
        RECORD + "test_the_planned_number_of_steps_is_a_hint_alone",
    ),
    "record: a zstd or lz4 bomb": Mutant(
        "explain/mcap_file.py",
        "if len(content) > left:",
        "if False:",
        RECORD + "test_what_unpacks_to_far_more_than_the_file_is_refused",
    ),
    "observations: an archive that unpacks to terabytes": Mutant(
        "files.py", "if total > most_bytes:", "if False:", FILES + "test_arrays_are_bounded_before_they_are_unpacked"
    ),
    "observations: a header that promises more than follows": Mutant(
        "files.py",
        'if dtype.kind not in "fiub" or math.prod(shape) * dtype.itemsize > archive.getinfo(f"{name}.npy").file_size:',
        "if False:",
        FILES + "test_arrays_are_bounded_before_they_are_unpacked",
    ),
    "results: a file name with a huge range of seeds": Mutant(
        "paper/job.py",
        "return range(first, last + 1)",
        "return set(range(first, last + 1))",
        "tests/paper/test_jobs.py::test_a_name_that_claims_a_huge_range_takes_no_memory",
    ),
    "results: an empty file that counts as finished": Mutant(
        "paper/job.py",
        'return isinstance(content, dict) and bool(content.get("rows"))',
        "return True",
        "tests/paper/test_jobs.py::test_a_file_without_a_result_does_not_count",
    ),
    # Malformed records of others.
    "flight: a recorded episode without a path": Mutant(
        "results/flight_path.py",
        "except (OSError, *MALFORMED) as error:",
        "except ZeroDivisionError as error:",
        "tests/results/test_flight_path.py::test_a_damaged_record_is_refused",
    ),
    "inference: an array that is none": Mutant(
        "results/trajectory_page.py",
        "except (OSError, ValueError) as error:",
        "except ZeroDivisionError as error:",
        "tests/cli/test_infer_command.py::test_a_malformed_inference_gets_one_line",
    ),
    "record: a field of another shape": Mutant(
        "explain/arrays.py",
        "if array.shape != shape or array.dtype != dtype:",
        "if False:",
        RECORD + "test_a_decision_with_a_bent_field_is_left_out_and_noted",
    ),
    "record: an attitude that is no rotation": Mutant(
        "explain/record.py",
        'if not 0.5 < np.linalg.norm(arrays["body_attitude"]) < 2:',
        "if False:",
        RECORD + "test_a_decision_with_a_bent_field_is_left_out_and_noted",
    ),
    "record: obstacles or masses that are none": Mutant(
        "explain/record.py",
        "if not all(plain[name] > 0 for name in POSITIVE):",
        "if False:",
        RECORD + "test_a_record_with_a_bent_head_is_refused",
    ),
    "log: a quaternion of zeros": Mutant(
        "explain/ulog.py",
        "if not (np.isfinite(felt).all() and (np.abs(size - 1) < 0.5).all()):  # False for NaN too",
        "if False:",
        ULOG + "test_attitudes_that_are_none_are_refused",
    ),
    # Folders.
    "folder: evaluate on one that is read-only": Mutant(
        "runs/api.py",
        "        require_writable(self.path, READ_ONLY)\n        result = evaluate(",
        "        result = evaluate(",
        FILES + "test_commands_on_a_read_only_run_get_one_line[evaluate]",
    ),
    "folder: report on one that is read-only": Mutant(
        "cli/report.py",
        "        require_writable(out.parent)\n",
        "",
        FILES + "test_commands_on_a_read_only_run_get_one_line[report]",
    ),
    "folder: export on one that is read-only": Mutant(
        "runs/export.py",
        "    require_writable(folder)\n",
        "",
        FILES + "test_commands_on_a_read_only_run_get_one_line[export]",
    ),
    "folder: temporary files of a killed writer": Mutant(
        "files.py",
        "            remove_leftovers(folder)\n        yield\n",
        "            pass\n        yield\n",
        FILES + "test_what_a_killed_writer_left_goes_and_what_a_running_one_writes_stays",
    ),
    "folder: a lock that can be deleted": Mutant(
        "files.py",
        "        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)\n        return handle\n",
        "        raise OSError(errno.EOPNOTSUPP)\n",
        FILES + "test_a_held_folder_stays_held_whatever_is_deleted_in_it",
    ),
    "folder: two inferences in one": Mutant(
        "runs/infer.py",
        "    with locked(folder), doing(",
        "    with doing(",
        FILES + "test_inference_holds_its_folder",
    ),
}
