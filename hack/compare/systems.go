package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"
)

// system is what is compared. Its settings are for the report.
type system struct {
	name, title, settings string
	start                 starter
	// rest passes after all candidates agree and before a fault, and then a random part of period, by which candidates
	// renew.
	rest, period time.Duration
	// limit is the time after which a round has failed.
	limit time.Duration
	// copies is the number of sets of candidates that run at once, up to maxSets. Systems with more than none wait for
	// most of the time, so several are measured at the same time. The others are measured alone, one after the other.
	copies int
	// memory is for how long a leader that fell silent changes the next failover. Rounds of such faults are that far
	// apart, in silentCopies sets at the same time.
	memory time.Duration
	// server: the candidates need etcd and the API server. single: a candidate can't be in several groups.
	server, single bool
	// unclaimed: the system doesn't tell a process that it may lead.
	unclaimed bool
	// without are faults that the system isn't made to detect.
	without []string
	// most is the largest number of groups that fits on the machine, if that isn't the largest one that is measured.
	most int
	mode string // of Conclave
}

// fault is what happens to all processes of the leader. Without a signal, its network is silent.
type fault struct {
	name, title string
	signal      syscall.Signal
}

// silent reports whether the fault keeps connections open.
func (f fault) silent() bool { return f.name == stopFault || f.name == silentFault }

// faultNames returns the names of the faults that keep connections open, or of the others.
func faultNames(silent bool) (names []string) {
	for _, f := range faults {
		if f.silent() == silent {
			names = append(names, f.name)
		}
	}
	return names
}

// The names of the faults that keep connections open.
const (
	stopFault   = "SIGSTOP"
	silentFault = "silence"
)

var faults = []fault{
	{"kill -9", "killed: its connections close", syscall.SIGKILL},
	{"SIGTERM", "asked to end", syscall.SIGTERM},
	{stopFault, "frozen: its connections stay open", syscall.SIGSTOP},
	{silentFault, "cut off: its packets are lost", 0},
}

const (
	second      = time.Second
	millisecond = time.Millisecond
)

var systems = []system{
	{
		name: "floor", title: "floor: end of a TCP connection", start: startFloor, rest: 50 * millisecond,
		limit: 5 * second, single: true,
		settings: "Bare processes. A process learns of the fault when it reads the end of its connection. The next leader " +
			"is the one with the lowest number, without any agreement: nothing that relies on connections can be faster.",
		unclaimed: true, without: faultNames(true),
	},
	conclave("Majority"), conclave("Strict"), conclave("Available"),
	{
		name: "raft-tuned", title: "hashicorp/raft, 50 ms", start: raftStarter(true), rest: 300 * millisecond,
		period: 50 * millisecond, limit: 30 * second,
		settings: "hashicorp/raft over TCP with raft-boltdb. HeartbeatTimeout, ElectionTimeout and LeaderLeaseTimeout 50 " +
			"ms, CommitTimeout 5 ms, as in the tests of its authors. SIGTERM: LeadershipTransfer, then Shutdown.",
	},
	{
		name: "raft", title: "hashicorp/raft", start: raftStarter(false), rest: 2 * second, period: second,
		limit: 60 * second, copies: 2,
		settings: "The same with DefaultConfig: HeartbeatTimeout and ElectionTimeout 1 s.",
	},
	{
		name: "lease-tuned", title: "Lease, 2/1.5/0.3 s", start: leaseStarter(2*second, 1500*millisecond, 300*millisecond),
		rest: second, period: 300 * millisecond, limit: 60 * second, copies: 3, server: true,
		settings: "client-go's leaderelection with a Lease: LeaseDuration 2 s, RenewDeadline 1.5 s, RetryPeriod 0.3 s. " +
			"SIGTERM: ReleaseOnCancel. A process leads from OnStartedLeading to OnStoppedLeading, which " +
			"one that was frozen or " +
			"is cut off gets only after RenewDeadline, or twice that.",
	},
	{
		name: "lease", title: "Lease, 15/10/2 s", start: leaseStarter(15*second, 10*second, 2*second), rest: 3 * second,
		period: 2 * second, limit: 60 * second, copies: 4, server: true,
		settings: "The same with the defaults: 15 s, 10 s, 2 s.",
	},
	{
		name: "etcd-tuned", title: "etcd election, TTL 1 s", start: etcdStarter(1), rest: second, period: second,
		limit: 60 * second, copies: 3, server: true,
		settings: "etcd's concurrency.Election with a session of TTL 1 s. etcd grants at least 2 s " +
			"with its default timing. " +
			"SIGTERM: Resign, then Close of the session. A process whose session ended opens another one and campaigns again.",
	},
	{
		name: "etcd", title: "etcd election, TTL 60 s", start: etcdStarter(60), rest: 3 * second, period: 20 * second,
		limit: 120 * second, copies: 10, server: true,
		settings: "The same with the default TTL, 60 s.",
	},
	{
		name: "sentinel-tuned", title: "Redis Sentinel, 1 s", most: 10, start: sentinelStarter("1000", "5000"),
		rest: 12 * second, period: second, limit: 60 * second, copies: 6,
		settings: "A Redis server and a Sentinel beside each process, quorum 2, down-after-milliseconds 1000, " +
			"failover-timeout 5000. The leader is the process beside the Redis master, as the command ROLE says. The others " +
			"learn it from their Sentinel's +switch-master. Sentinel has no way to hand over at SIGTERM.",
	},
	{
		name: "sentinel", title: "Redis Sentinel", most: 10, start: sentinelStarter("30000", "180000"), rest: 12 * second,
		period: second, limit: 120 * second, copies: 10,
		settings: "The same with the defaults: down-after-milliseconds 30000, failover-timeout 180000.",
	},
}

// conclave returns Conclave in a safety mode, with the default timing.
func conclave(mode string) system {
	s := system{
		name: "conclave-" + strings.ToLower(mode), title: "Conclave, " + mode, start: startConclave, rest: 700 * millisecond,
		period: 100 * millisecond, limit: 30 * second, mode: mode,
		settings: "The same with safety.mode " + mode + ".",
	}
	if mode == "Majority" {
		s.settings = "conclave-agent with TLS and default timing beside each process, which uses the Go client: it " +
			"leads while the context " +
			"of its function in client.Run hasn't ended, and learns of others by client.Watch. preemption.policy " +
			"is Never. SIGTERM goes " +
			"to process and agent at the same time. In Majority and Strict, the rounds of SIGSTOP and silence are a " +
			"minute apart, in 6 sets, " +
			"because leases are longer for a minute after a coordinator that fell silent and returned."
	}
	if mode != "Available" { // See ADR 44.
		s.memory = time.Minute
	}
	return s
}

func allNames() []string {
	names := make([]string, len(systems))
	for i, s := range systems {
		names[i] = s.name
	}
	return names
}

func systemNamed(name string) (system, error) {
	at := slices.IndexFunc(systems, func(s system) bool { return s.name == name })
	if at < 0 {
		return system{}, fmt.Errorf("there is no system %q, only %s", name, strings.Join(allNames(), ", "))
	}
	return systems[at], nil
}
