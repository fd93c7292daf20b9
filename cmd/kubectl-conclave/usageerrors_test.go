package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/expect"
)

func TestUsageErrorIsOneLineThatStatesWhatIsCorrect(t *testing.T) {
	for args, want := range map[string]string{
		"elect":                   `unknown command "elect" for kubectl conclave; available commands: chaos, check, dashboard, evacuate, explain, nodes, report, simulate, status, step-down, version, watch`,
		"statsu ledger":           `unknown command "statsu" for kubectl conclave (did you mean status?); available commands: chaos, check, dashboard, evacuate, explain, nodes, report, simulate, status, step-down, version, watch`,
		"simulate --algorithms x": `unknown flag: --algorithms (did you mean --algorithm?); for the flags, run: kubectl conclave simulate --help`,
		"simulate now":            `kubectl conclave simulate accepts no arguments, got "now"`,
		"status ledger mail":      `kubectl conclave status accepts one group, got 2: remove "mail"`,
		"status -A ledger":        `--all-namespaces shows all groups: remove it, or remove "ledger"`,
		"check --output":          `--output requires a value`,
		"watch":                   `the name of a group is required, such as: kubectl conclave watch ledger`,
		"watch ledger mail news":  `kubectl conclave watch accepts one group, got 3: remove "mail"`,
		"explain":                 `the name of a group is required, such as: kubectl conclave explain ledger`,
		"explain --nodes":         `unknown flag: --nodes; for the flags, run: kubectl conclave explain --help`,
		"step-down":               `the name of a group is required, such as: kubectl conclave step-down ledger`,

		"chaos":                                               `the name of a group is required, such as: kubectl conclave chaos ledger`,
		"chaos ledger --faults 0":                             `--faults must be 1 or more, got 0`,
		"chaos ledger --pause -1s":                            `--pause must be 0s or longer, got -1s`,
		"chaos ledger --timeout 0s":                           `--timeout must be 1s or longer, got 0s`,
		"chaos ledger -o yaml":                                `unknown output "yaml": choose one of table, json, markdown, junit`,
		"chaos --leader zookeeper:x":                          `--leader must be lease/NAME, lease/NAMESPACE/NAME, label:KEY=VALUE, http://PORT/PATH or exec:COMMAND, got "zookeeper:x"`,
		"chaos --leader http://web/leader":                    `--leader must be lease/NAME, lease/NAMESPACE/NAME, label:KEY=VALUE, http://PORT/PATH or exec:COMMAND, got "http://web/leader"`,
		"chaos ledger --observe 5m --check true":              `--observe injects no faults: remove it or --check`,
		"chaos ledger --observe 5m --fail-if max(settled)>1s": `--fail-if "max(settled)>1s": settled isn't measured with --observe`,
		"chaos --leader lease/web --observe 1ms":              `--observe must be 1s or longer, got 1ms`,
		"chaos --leader lease/web --observe 5m --faults 3":    `--observe injects no faults: remove it or --faults`,
		"chaos ledger --leader lease/web":                     `either a group or --leader can be tested: remove "ledger" or --leader`,
		"chaos ledger --selector app=web":                     `--selector needs --leader`,
		"chaos --leader lease/web --kinds delay":              `--kinds: only groups react to delay: choose others`,
		"chaos ledger --fail-if flaps>0":                      `--fail-if "flaps>0": flaps isn't measured here`,
		"chaos --leader lease/web --fail-if two-leaders>0":    `--fail-if "two-leaders>0": a Lease can't show two leaders: ask the processes, by --leader http://PORT/PATH or exec:COMMAND`,
		"chaos ledger --seed x":                               `--seed must be a whole number, 0 or above, got "x"`,
		"chaos ledger --kinds rain":                           `--kinds: unknown kind of fault "rain": choose some of pod, force-pod, two, all, rollout, evict, cordon, drain, manager, agent, app, freeze, node, partition, loss, delay, apiserver`,
		"chaos ledger --kinds all,all":                        `--kinds: kind all is named twice; name it once`,
		"chaos ledger --machines minikube":                    `--machines must be docker, podman, nerdctl, for a kind cluster, got "minikube"`,

		"nodes node-3":   `kubectl conclave nodes accepts no arguments, got "node-3"`,
		"nodes -o table": `unknown output "table": choose one of json, yaml`,
		"version 2":      `kubectl conclave version accepts no arguments, got "2"`,

		"simulate --colour":                                  `unknown flag: --colour; for the flags, run: kubectl conclave simulate --help`,
		"simulate -q":                                        `unknown shorthand flag: 'q' in -q; for the flags, run: kubectl conclave simulate --help`,
		"simulate --processes":                               `--processes requires a value`,
		"simulate --processes ten":                           `--processes must be a whole number such as 10, got "ten"`,
		"simulate --processes 1.5":                           `--processes must be a whole number such as 10, got "1.5"`,
		"simulate --processes 0":                             `processes must be from 1 to 100000, not 0`,
		"simulate --processes -3":                            `processes must be from 1 to 100000, not -3`,
		"simulate --processes 10000000":                      `processes must be from 1 to 100000, not 10000000`,
		"simulate --algorithm buly":                          `unknown algorithm "buly" (did you mean Bully?): choose one of Bully, StatusTable, RingAllIDs, RingChampion, RingActiveList, RingSkip`,
		"simulate --algorithm=":                              `unknown algorithm "": choose one of Bully, StatusTable, RingAllIDs, RingChampion, RingActiveList, RingSkip`,
		"simulate -o yaml":                                   `unknown output "yaml": choose one of table, json, transcript, mermaid`,
		"simulate -o svg":                                    `unknown output "svg": choose one of table, json, transcript, mermaid`,
		"simulate --crashed 11":                              `crashed: there is no process of priority 11; priorities are 1 to 10`,
		"simulate --crashed 0":                               `crashed: there is no process of priority 0; priorities are 1 to 10`,
		"simulate --crashed 9,9":                             `crashed: priority 9 is named twice; name it once`,
		"simulate --crashed 9,,8":                            `--crashed must be priorities from 1 to 10, separated by commas, got ""`,
		"simulate --crashed -1":                              `--crashed must be priorities from 1 to 10, separated by commas, got "-1"`,
		"simulate --crashed 99999999999":                     `--crashed must be priorities from 1 to 10, separated by commas, got "99999999999"`,
		"simulate --initiators p4":                           `--initiators must be priorities from 1 to 10, separated by commas, got "p4"`,
		"simulate --initiators 12":                           `initiators: there is no process of priority 12; priorities are 1 to 10`,
		"simulate --initiators=":                             `no process starts an election: name initiators, or a process to recover`,
		"simulate --initiators 4,4":                          `initiators: priority 4 is named twice; name it once`,
		"simulate --ring 1,2":                                `the ring must name each of the 10 processes once, it names 2`,
		"simulate --ring=":                                   `--ring must name every process once; omit it for ascending order`,
		"simulate --latency 5":                               `--latency must be a duration such as 5ms or 1s, got "5"`,
		"simulate --latency -1ms":                            `--latency must be from 1µs to 1h, got -1ms`,
		"simulate --latency 0s":                              `--latency must be from 1µs to 1h, got 0s`,
		"simulate --latency 10ns":                            `--latency must be from 1µs to 1h, got 10ns`,
		"simulate --latency 2h":                              `--latency must be from 1µs to 1h, got 2h0m0s`,
		"simulate --stagger -1s":                             `--stagger must be from 0s to 1h, got -1s`,
		"simulate --safety majoity":                          `unknown safety mode "majoity" (did you mean Majority?): choose one of Available, Majority, Strict`,
		"simulate --safety=":                                 `--safety must be Available, Majority or Strict; omit it for the election alone`,
		"simulate --seed -1":                                 `--seed must be a whole number, 0 or above, got "-1"`,
		"simulate --recover 11":                              `recover: there is no process of priority 11; priorities are 1 to 10`,
		"simulate --recover 0":                               `--recover must be the priority of a process, from 1 to 10, got 0`,
		"simulate --recover 4294967297":                      `--recover must be the priority of a process, from 1 to 10, got 4294967297`,
		"simulate --processes 0 --recover 0":                 `processes must be from 1 to 100000, not 0`,
		"simulate --processes 0 --crashed x":                 `processes must be from 1 to 100000, not 0`,
		"simulate --processes 99999999999999999999":          `--processes must be a whole number such as 10, and 99999999999999999999 is out of range`,
		"simulate --help=maybe":                              `--help must be true or false, got "maybe"`,
		"simulate --schedules 5 --safety=":                   `--safety must be Available, Majority or Strict; omit it for Majority`,
		"simulate --processes 100000 --algorithm RingAllIDs": `RingAllIDs with 100000 processes takes too many messages: choose fewer processes, or RingChampion or RingSkip`,
		"simulate --processes 2000 --safety Strict --algorithm RingActiveList":  `RingActiveList with 2000 processes takes too many messages: choose fewer processes, or RingChampion or RingSkip`,
		"simulate --processes 10000 --algorithm RingActiveList --recover 10000": `RingActiveList with 10000 processes takes too many messages: choose fewer processes, or RingChampion or RingSkip`,
		"help elect":                                   `unknown command "elect" for kubectl conclave; available commands: chaos, check, dashboard, evacuate, explain, nodes, report, simulate, status, step-down, version, watch`,
		"simulate --recover -2":                        `--recover must be the priority of a process, from 1 to 10, got -2`,
		"simulate --seed 3":                            `--seed applies to random schedules only: add --schedules`,
		"simulate --convergence-every 0":               `--convergence-every applies to random schedules only: add --schedules`,
		"simulate --faults loss":                       `--faults applies to random schedules only: add --schedules`,
		"explain ledger -o table":                      `unknown output "table": choose one of text, mermaid`,
		"explain ledger --html a -o mermaid":           `--html and --output exclude each other: omit one of them`,
		"explain ledger --term last":                   `--term must be a whole number, 0 or above, got "last"`,
		"simulate --schedules 0":                       `--schedules must be 1 or more, got 0`,
		"simulate --schedules -1":                      `--schedules must be 1 or more, got -1`,
		"simulate --duration 0s":                       `--duration must be above 0, such as 10m, got 0s`,
		"simulate --schedules 5 -o csv":                `unknown output "csv": choose one of table, json, transcript, mermaid`,
		"simulate --processes 1 --recover 1":           `recover needs at least 2 processes: another one must be up`,
		"simulate --processes 3 --crashed 1,2,3":       `all processes are crashed: leave at least one up`,
		"simulate --processes 3 --ring 1,2,2":          `ring: priority 2 is named twice; name it once`,
		"simulate --processes 3 --ring 1,2,4":          `ring: there is no process of priority 4; priorities are 1 to 3`,
		"simulate --crashed 10,4 --initiators 4":       `initiators: process 4 is down; choose one that is up`,
		"simulate --recover 4 --crashed 10":            `recover excludes crashed and initiators: all other processes are up, and none of them starts an election`,
		"simulate --processes 5000 --safety Strict":    `with a safety mode processes must be from 1 to 2000, not 5000`,
		"simulate --schedules 5 --faults thunderstorm": `unknown fault "thunderstorm": choose all, none, or some of loss, delay, reorder, duplicate, crash, appdead, pause, partition, clocks, members, stepdown, leases, graph, slow, jump, disk, deep, skew, gone, settings, recovery, late, correct, latency, lossy, throttle, failing, drains, operator, burst, pods, mixed, rejoin, grow, tail, redial, few`,
		"simulate --schedules 5 --faults none,loss":    `unknown fault "none": choose all, none, or some of loss, delay, reorder, duplicate, crash, appdead, pause, partition, clocks, members, stepdown, leases, graph, slow, jump, disk, deep, skew, gone, settings, recovery, late, correct, latency, lossy, throttle, failing, drains, operator, burst, pods, mixed, rejoin, grow, tail, redial, few`,
		"simulate --schedules 5 --crashed 4":           `--crashed applies to a single run only: random schedules choose crashes and delays themselves, so remove it`,
		"simulate --schedules 5 --latency 1ms":         `--latency applies to a single run only: random schedules choose crashes and delays themselves, so remove it`,
		"simulate --schedules 5 --duration 1m":         `--schedules and --duration are mutually exclusive: remove one of them`,
		"simulate --schedules 5 -o transcript":         `-o transcript supports a single schedule: add --schedules 1, and --seed to choose it`,
		"simulate --schedules 1 -o mermaid":            `-o mermaid does not support random schedules: choose table or json, or transcript with --schedules 1`,
	} {
		t.Run(args, func(t *testing.T) {
			got := runCommand(t, nil, strings.Fields(args)...)
			expect.Equalf(t, got.status, 2, "exit status")
			if got.stderr != "error: "+want+"\n" {
				t.Errorf("stderr: got\n%swant\nerror: %s", got.stderr, want)
			}
			expect.Equalf(t, got.stdout, "", "stdout")
		})
	}
}

// Names of algorithms, safety modes, faults and outputs are accepted in any case.
func TestNamesAreAcceptedInAnyCase(t *testing.T) {
	for given, canonical := range map[string]string{
		"simulate --algorithm bully -o JSON":                           "simulate --algorithm Bully -o json",
		"simulate --algorithm RINGSKIP --safety strict -o json":        "simulate --algorithm RingSkip --safety Strict -o json",
		"simulate --schedules 1 --faults Loss,CRASH -o Transcript":     "simulate --schedules 1 --faults loss,crash -o transcript",
		"simulate --schedules 1 --faults NONE -o transcript --seed 12": "simulate --schedules 1 --faults none -o transcript --seed 12",
	} {
		got, want := runCommand(t, nil, strings.Fields(given)...), runCommand(t, nil, strings.Fields(canonical)...)
		for _, r := range []*result{&got, &want} {
			r.stdout = elapsedMillis.ReplaceAllString(r.stdout, "")
		}
		if got != want || got.status != 0 {
			t.Errorf("%s: got %+v, want %+v", given, got, want)
		}
	}
}

// elapsedMillis is the only part of an outcome that may differ between two runs.
var elapsedMillis = regexp.MustCompile(`"elapsedMillis":\d+`)
