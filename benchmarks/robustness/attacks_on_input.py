"""Attacks by options, environments and neighbours on the network, claims that said too much, and the fix taken out.

Names say the attack. A mutant is a text in `src/awavo`, what is there without the fix, and the tests that must fail.
"""

from __future__ import annotations

from mutation_check import Mutant

__all__ = ["ATTACKS"]

MAIN = "tests/cli/test_main.py::"
INFER = "tests/cli/test_infer_command.py::test_bad_input_is_one_line_and_writes_nothing"
HOST = "tests/tasks/test_host.py::"
BRIDGE = "tests/tasks/test_bridge.py::"
LINK = "tests/deploy/test_mavlink.py::"
CERTIFY = "tests/runs/test_certify.py::"
MEMORY = "tests/runs/test_memory.py::"
INTERVAL = "tests/formal/test_interval.py::"


def bad(*cases: str) -> str:
    """The tests of bad input on the command line, by their names, which have spaces."""
    return " ".join(f"'{MAIN}test_bad_input_gets_one_line_exit_code_2_and_writes_nothing[{case}]'" for case in cases)


ATTACKS = {
    # Environments.
    "environment: NaN or 3e38 from reset()": Mutant(
        "tasks/host_core.py",
        '        self._check_numbers("reset()", observation=obs)\n        self._obs = obs\n',
        "        self._obs = obs\n",
        HOST + "test_observations_of_resets_are_checked_like_those_of_steps",
    ),
    "environment: NaN from an episode begun in place of another": Mutant(
        "tasks/host_core.py",
        '            self._check_numbers("reset()", observation=obs)\n',
        "",
        "tests/tasks/test_restart.py::test_what_a_restart_shows_is_checked",
    ),
    "environment: NaN or 3e38 after an automatic reset": Mutant(
        "tasks/host_core.py",
        '        self._check_numbers("reset() after an episode", observation=out.obs)\n',
        "",
        HOST
        + "test_observations_of_resets_are_checked_like_those_of_steps "
        + HOST
        + "test_training_stops_at_a_spoilt_reset_and_keeps_the_checkpoint_before",
    ),
    "environment: finite numbers whose square is not": Mutant(
        "checks.py",
        "bool((np.abs(np.asarray(values)) <= LARGEST).all())",
        "bool(np.isfinite(np.asarray(values)).all())",
        HOST + "test_observations_of_resets_are_checked_like_those_of_steps",
    ),
    "environment: one that raises": Mutant(
        "tasks/patience.py",
        "    except (Exception, SystemExit) as error:\n",
        "    except AwavoError as error:\n",
        HOST + "test_an_environment_that_raises_is_named_with_the_place",
    ),
    "environment: one that raises, and what is saved": Mutant(
        "runs/train.py",
        "        except BrokenEnvironmentError as error:\n",
        "        except ZeroDivisionError as error:\n",
        "tests/training/test_host_loop.py::test_an_environment_that_raises_loses_the_steps_since_the_last_checkpoint",
    ),
    "environment: one that hangs": Mutant(
        "tasks/patience.py",
        "        signal.setitimer(signal.ITIMER_REAL, timeout)\n",
        "        pass\n",
        HOST + "test_an_environment_that_hangs_is_given_up[sync]",
    ),
    "bridge: a worker that takes no request": Mutant(
        "tasks/bridge.py",
        "_, ready, _ = select.select([], [stream], [], max(0.0, deadline - time.monotonic()))",
        "_, ready, _ = select.select([], [stream], [])",
        BRIDGE + "test_a_worker_that_takes_no_request_is_given_up",
    ),
    "bridge: processes that outlive their environment": Mutant(
        "tasks/bridge_worker.py",
        "        os.killpg(0, signal.SIGTERM)\n",
        "        pass\n",
        BRIDGE + "test_what_an_environment_started_ends_with_it[kill]",
    ),
    "bridge: processes that outlive close()": Mutant(
        "tasks/bridge.py",
        "        os.killpg(process.pid, signal.SIGKILL)\n",
        "        pass\n",
        BRIDGE + "test_what_hides_from_the_first_signal_ends_with_close",
    ),
    "bridge: a header that is no table": Mutant(
        "tasks/bridge_worker.py",
        "if not isinstance(named, list) or len(named) > MAX_ARRAYS:",
        "if named is None:",
        BRIDGE + "test_malformed_answers_are_refused",
    ),
    "bridge: arrays that are none": Mutant(
        "tasks/bridge_worker.py",
        "or any(type(n) is not int or n < 0 for n in shape):",
        "or False:",
        BRIDGE + "test_malformed_answers_are_refused",
    ),
    "bridge: an offer that is none": Mutant(
        "tasks/bridge.py",
        "if problem := _offer_problem(offer, arrays):",
        "if problem := None:",
        BRIDGE + "test_malformed_answers_are_refused",
    ),
    "bridge: an observation of another shape": Mutant(
        "tasks/bridge.py",
        "if found is None or found.shape != (self._obs_dim,) or found.dtype != np.float32:",
        "if found is None:",
        BRIDGE + "test_answers_that_cannot_be_used_are_refused",
    ),
    "bridge: NaN on reset": Mutant(
        "tasks/bridge.py",
        "        if not all_usable(found):\n",
        "        if False:\n",
        BRIDGE + "test_answers_that_cannot_be_used_are_refused",
    ),
    # The link to a vehicle.
    "vehicle: it listens on every interface": Mutant(
        "deploy/vehicle.py",
        '        self.radio.port.bind(("127.0.0.1", 0))\n        self.radio.port.connect(("127.0.0.1", port))\n',
        '        self.radio.port.bind(("0.0.0.0", 0))\n',
        LINK + "test_a_vehicle_listens_on_loopback_alone",
    ),
    "vehicle: it hears any address": Mutant(
        "deploy/vehicle.py",
        '        self.radio.port.connect(("127.0.0.1", port))\n',
        "",
        LINK + "test_a_vehicle_obeys_its_controller_alone",
    ),
    "vehicle: it obeys any sender": Mutant(
        "deploy/vehicle.py",
        "return message.get_srcSystem() == self.sender and target[0] == SYSTEM",
        "return target[0] == SYSTEM",
        LINK + "test_a_vehicle_obeys_its_controller_alone",
    ),
    "vehicle: it obeys what is meant for another": Mutant(
        "deploy/vehicle.py",
        "self.sender and target[0] == SYSTEM and target[1] in (0, COMPONENT)",
        "self.sender",
        LINK + "test_a_vehicle_obeys_its_controller_alone",
    ),
    "vehicle: setpoints that are no numbers": Mutant(
        "deploy/vehicle.py",
        "if not (0 <= message.thrust <= 1 and (np.abs(rates) <= FASTEST).all()):  # False for NaN too",
        "if False:",
        LINK + "test_a_vehicle_denies_numbers_that_no_vehicle_could_follow",
    ),
    "link: it adopts any system": Mutant(
        "deploy/radio.py",
        "if systems != {self._system} or self.peer not in (None, sender):",
        "if self.peer not in (None, sender):",
        LINK + "test_a_link_hears_its_system_and_then_its_address_alone",
    ),
    "link: it believes any port with the vehicle's number": Mutant(
        "deploy/radio.py",
        "if systems != {self._system} or self.peer not in (None, sender):",
        "if systems != {self._system}:",
        LINK + "test_a_link_told_its_peer_hears_nobody_else",
    ),
    "link: a watchdog of NaN or infinite seconds": Mutant(
        "deploy/mavlink.py",
        "if not 0 < getattr(config, name) <= LARGEST[name]:  # False for NaN too",
        "if getattr(config, name) <= 0:",
        LINK + "test_a_watchdog_without_end_is_refused",
    ),
    # The command line.
    "Ctrl-C: swallowed by an import": Mutant(
        "cli/train.py",
        "        with stop_flag() as stopping:\n            return self._train(stopping)\n",
        "        return self._train(lambda: False)\n",
        "tests/training/test_interruption.py::test_a_signal_that_an_import_swallows_still_stops_the_run",
    ),
    "Ctrl-C: while the problem is built": Mutant(
        "runs/api.py",
        "    with stop_flag():\n        enable_cache()\n",
        "    if True:\n        enable_cache()\n",
        "tests/training/test_interruption.py::test_a_signal_while_the_problem_is_built_stops_before_the_first_step",
    ),
    "fault: an exception that looks like a negative verdict": Mutant(
        "cli/main.py",
        "        code = _fail(*_unforeseen(error), as_json)\n",
        "        code = _fail(str(error), 1, as_json)\n",
        MAIN + "test_a_fault_of_ours_is_one_line_exit_code_3_and_details_in_a_file",
    ),
    "option: --steps inf and 1e400": Mutant(
        "cli/train.py",
        "if not 1 <= value < math.inf or value != int(value):",
        "if value != int(value):",
        bad("steps", "steps without end"),
    ),
    "option: a number without end": Mutant(
        "config.py", "if not abs(value) < 1e300:", "if value != value:", bad("a huge option")
    ),
    "option: a number of 5,000 digits": Mutant(
        "config.py",
        "    except ValueError:\n        pass\n",
        "    except KeyError:\n        pass\n",
        bad("an option of 5000 digits"),
    ),
    "option: lists in lists": Mutant(
        "config.py",
        "    except RecursionError:\n",
        "    except KeyError:\n",
        bad("lists in lists"),
    ),
    "option: a long list": Mutant("config.py", "if len(text) > LONGEST_VALUE:", "if False:", bad("a long option")),
    "option: --seed 2147483647 --seeds 2": Mutant(
        "config.py", "config.seed + config.seeds > 2**31:", "False:", bad("the last seed")
    ),
    "option: --seed 10**23": Mutant(
        "config.py", '"first seed", low=0, high=2**31 - 1)', '"first seed", low=0)', bad("a huge seed")
    ),
    "option: certify --seed -1": Mutant(
        "cli/certify.py",
        'check_range("--seed", self.seed, 0, LARGEST_SEED - MOST_EPISODES)',
        "pass",
        bad("seed of a certificate"),
    ),
    "option: --delta 1e-320": Mutant(
        "cli/certify.py", 'check_range("--delta", self.delta, 1e-12, 1 - 1e-12)', "pass", bad("a tiny delta")
    ),
    "option: --temperature 0": Mutant(
        "cli/certify.py",
        'check_range("--temperature", self.temperature, 1e-6, 1e3)',
        "pass",
        bad("no temperature"),
    ),
    "option: --kappa inf": Mutant(
        "cli/certify.py", 'check_range("--kappa", self.kappa, 1e-3, 1e3)', "pass", bad("kappa without end")
    ),
    "option: --cost-fn .x:y": Mutant(
        "registry.py",
        "    except (Exception, SystemExit) as error:  # the user's module may raise anything while it is imported\n",
        "    except KeyError as error:\n",
        bad("relative module"),
    ),
    "option: a name over 255 characters": Mutant("cli/main.py", "errno.ENAMETOOLONG, ", "", bad("a long name")),
    "option: --out /dev/null/x": Mutant(
        "files.py",
        "    if not there.is_dir():\n",
        "    if False:\n",
        bad("no folder"),
    ),
    "option: infer --unobserved 1e400": Mutant(
        "cli/infer.py", "    if not 0 <= value < 1:\n", "    if False:\n", INFER
    ),
    "option: infer --noise 1e308": Mutant(
        "cli/infer.py", 'check_range("--noise", self.noise, 1e-6, 1e6)', "pass", INFER
    ),
    "option: infer --states 10**12": Mutant(
        "cli/infer.py", "if self.states is not None and self.states > MOST_STATES:", "if False:", INFER
    ),
    "task option: nan, inf, text": Mutant(
        "registry.py",
        "if not abs(value) <= LARGEST_OPTION:  # NaN compares as false, and whole numbers have no end",
        "if False:",
        "tests/tasks/test_task_options.py::test_nonsense_is_refused_in_every_option[cartpole]",
    ),
    "task option: horizon=abc": Mutant(
        "registry.py",
        "if isinstance(value, bool) or not isinstance(value, int):",
        "if False:",
        "tests/tasks/test_task_options.py::test_the_command_refuses_them_and_writes_nothing",
    ),
    "task option: physics that are none": Mutant(
        "checks.py",
        "if not all(low <= number <= large for number in np.ravel(value).tolist()):  # NaN compares as false",
        "if False:",
        "tests/tasks/test_task_options.py::test_the_command_refuses_them_and_writes_nothing",
    ),
    "terminal: escapes in what is printed": Mutant(
        "cli/main.py",
        "if not text.isprintable():",
        "if False:",
        MAIN + "test_what_is_printed_cannot_drive_the_terminal_but_may_be_coloured",
    ),
    "terminal: escapes in an error": Mutant(
        "cli/main.py",
        'line = printable(" ".join(message.split()))',
        'line = " ".join(message.split())',
        MAIN + "test_names_cannot_drive_the_terminal",
    ),
    "memory: a training that does not fit": Mutant(
        "runs/api.py",
        "        check_training(config, problem)\n",
        "",
        MEMORY + "test_a_training_that_does_not_fit_is_refused[train-networks]",
    ),
    "memory: plans that do not fit": Mutant(
        "runs/memory.py",
        '        "decisions": at_once * largest,\n',
        '        "decisions": 0,\n',
        MEMORY + "test_a_training_that_does_not_fit_is_refused[train-candidates]",
    ),
    "memory: thousands of processes": Mutant(
        "runs/problem.py",
        "    if copies > most:\n",
        "    if False:\n",
        MEMORY + "test_environments_of_all_seeds_count_together",
    ),
    # Claims that said too much.
    "claim: safe on average, and nothing of single episodes": Mutant(
        "formal/safety.py",
        "{'; '.join(map(_both, rows))}",
        "all limits",
        "tests/formal/test_safety.py::test_the_bound_and_the_share_of_episodes_above_the_limit_are_both_said",
    ),
    "claim: safe on the terminal, and nothing of single episodes": Mutant(
        "cli/certify.py",
        'for row in entry["details"]["costs"]:',
        "for row in []:",
        CERTIFY + "test_what_is_said_of_limits_and_of_the_method_is_kept_apart",
    ),
    "claim: a fixed CMDP taken for the run's task": Mutant(
        "formal/run_certificates.py",
        "return [replace(c, claim=about + c.claim) for c in found]",
        "return found",
        CERTIFY + "test_what_is_said_of_limits_and_of_the_method_is_kept_apart",
    ),
    "claim: a run's own best return taken for the optimum": Mutant(
        "formal/rates.py",
        "if single or (verdict == SUPPORTED and not known):",
        "if single:",
        "tests/formal/test_theorem.py::test_a_policy_stuck_halfway_is_not_called_convergent",
    ),
    "claim: proofs of the method counted with the limits": Mutant(
        "results/certificate_record.py",
        'return name.split(".")[0] == "safety"',
        "return True",
        CERTIFY + "test_what_is_said_of_limits_and_of_the_method_is_kept_apart",
    ),
    "certify: a policy that plans, silently and to the last episode": Mutant(
        "runs/certify.py",
        '        options["anytime"] = plans\n',
        '        options["anytime"] = False\n',
        CERTIFY + "test_a_policy_that_plans_is_played_in_small_batches_until_it_is_decided",
    ),
    "certify: plans for episodes that have ended": Mutant(
        "training/evaluation.py",
        "(carry[0] < env.spec.horizon) & carry[3].any()",
        "carry[0] < env.spec.horizon",
        "tests/training/test_evaluation.py::test_no_decision_is_made_once_every_episode_has_ended",
    ),
    "operators: no rule for the arctangent": Mutant(
        "formal/enclosure_rules.py",
        '    "atan": _arctangent,\n',
        "",
        INTERVAL + "test_enclosures_hold_sampled_values_and_slopes",
    ),
    "operators: no rule for the cube root": Mutant(
        "formal/enclosure_rules.py", '    "cbrt": _cube_root,\n', "", INTERVAL + "test_a_cube_root_rises_through_zero"
    ),
    "operators: no rule for softplus": Mutant(
        "formal/enclosure.py",
        'return SOMEWHERE if "maybe" in (x.defined, y.defined) else log_add_exp(x, y)',
        "raise Unsupported(\"no interval rule for 'logaddexp'\")",
        INTERVAL + "test_softplus_is_smooth_and_known_by_what_it_computes",
    ),
}
