package rules

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Measurement is what the agent of a group's coordinator has measured in the last minutes.
type Measurement struct {
	// Unknown is why it couldn't be read, or "".
	Unknown string
	Timing  control.TimingInForce
	// Size is the number of members, and Members are those whose answers were measured.
	Size    int
	Members []MemberAnswers
}

// MemberAnswers is how long the answers of a member took.
type MemberAnswers struct {
	Pod string
	control.Answers
}

const (
	// suspicionFactor is how many times as long as 99 % of the answers take a delay may be without an effect.
	suspicionFactor = 4
	// answersMin is the least number of answers whose 99 % mean anything.
	answersMin = 100
	// leaseMargin is the part of a lease on which a coordinator doesn't rely: a sixteenth.
	leaseMargin = 16
)

// checkTiming compares the timing of a group with the delays that were measured.
//
// A heartbeat follows the one before after an interval. If its answer takes longer than the suspicion timeout minus
// this interval, the member may suspect the coordinator meanwhile. If the answers of so many members take longer than
// the lease minus the interval that no majority is left, the coordinator loses its lease. Half of an answer's time may
// be the way back, which doesn't matter for a suspicion, but nobody knows how much it was.
func checkTiming(f *Facts, g *v1.ElectionGroup) []Finding {
	m, gathered := f.Measurements[client.ObjectKeyFromObject(g)]
	if !gathered {
		return nil
	}
	object := "timing of group " + g.Namespace + "/" + g.Name
	if m.Unknown != "" {
		return []Finding{{Level: Unknown, Object: object, Message: "It is unknown how long answers to heartbeats take: " +
			m.Unknown + "."}}
	}
	d := &delays{Measurement: m}
	if g.Status.Coordinator != nil {
		d.coordinator = g.Status.Coordinator.Pod
	}
	result := d.check()
	result.Object = object
	if pause := d.pause(); pause != "" {
		if result.Level == OK {
			pause += " It was the only delay that the timing doesn't tolerate, so it is no reason for a longer one."
		}
		return []Finding{result, {
			Warning, object, pause,
			"Find out what paused it, such as a CPU limit, a busy or frozen node, or the network.",
		}}
	}
	return []Finding{result}
}

// delays are the measured delays of a group and its timing.
type delays struct {
	Measurement

	// coordinator is the pod whose agent has measured.
	coordinator string
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// slowest returns the member with the longest answer.
func (d *delays) slowest() MemberAnswers {
	return slices.MaxFunc(d.Members, func(a, b MemberAnswers) int { return cmp.Compare(a.LongestMicros, b.LongestMicros) })
}

// longestTiming returns the longest suspicion timeout and lease, 0 in Available mode. The lease grows if a majority
// answers late, and the suspicion timeout with it: not if a few members do.
func (d *delays) longestTiming(ofMajority time.Duration) (suspicionTimeout, lease time.Duration) {
	t := d.Timing
	suspicionTimeout = millis(t.SuspicionTimeoutMillis)
	if ofMajority > suspicionTimeout {
		suspicionTimeout = max(suspicionTimeout, millis(t.LongestSuspicionTimeoutMillis))
	}
	return suspicionTimeout, millis(max(t.LeaseMillis, t.LongestLeaseMillis))
}

// tolerated returns the longest delay without an effect.
func (d *delays) tolerated() time.Duration {
	heartbeat := millis(d.Timing.HeartbeatMillis)
	suspicionTimeout, lease := d.longestTiming(0)
	if lease > 0 {
		suspicionTimeout = min(suspicionTimeout, lease-lease/leaseMargin)
	}
	return suspicionTimeout - heartbeat
}

// paused reports whether a single answer of a member took longer than what is tolerated.
func (d *delays) paused(a *MemberAnswers) bool {
	return !a.LongestAt.IsZero() && micros(a.LongestMicros) > d.tolerated() && micros(a.SecondMicros) <= d.tolerated()
}

// samePause is how much later than the first answers the last ones may arrive if the coordinator was paused.
const samePause = time.Second

// pause describes the longest pause, or returns "". If the answers of several members were late at the same time, it
// was rather the coordinator that paused.
func (d *delays) pause() string {
	paused := slices.DeleteFunc(slices.Clone(d.Members), func(a MemberAnswers) bool { return !d.paused(&a) })
	if len(paused) == 0 {
		return ""
	}
	longest := (&delays{Measurement: Measurement{Members: paused}}).slowest()
	who := "The agent of " + longest.Pod
	if slices.ContainsFunc(paused, func(a MemberAnswers) bool {
		return a.Pod != longest.Pod && a.LongestAt.Sub(longest.LongestAt).Abs() < samePause
	}) {
		who = "The coordinator's agent (" + d.coordinator + ")"
	}
	return fmt.Sprintf("%s, or the network to it, paused for %.1f s at %s.", who, micros(longest.LongestMicros).Seconds(),
		longest.LongestAt.UTC().Format("15:04:05 MST"))
}

// longest returns the longest delay of a member, except one pause.
func (d *delays) longest(a *MemberAnswers) time.Duration {
	if d.paused(a) {
		return micros(a.SecondMicros)
	}
	return micros(a.LongestMicros)
}

// margin returns the delay that is to be expected of a member.
func (d *delays) margin(a *MemberAnswers) time.Duration {
	longest := d.longest(a)
	if a.Count < answersMin {
		return longest
	}
	return max(longest, suspicionFactor*micros(a.P99Micros))
}

// ofMajority returns the longest delay of the fastest members that the coordinator, which is one of
// the majority, needs for it.
func (d *delays) ofMajority(delay func(*MemberAnswers) time.Duration) time.Duration {
	var all []time.Duration
	for i := range d.Members {
		all = append(all, delay(&d.Members[i]))
	}
	slices.Sort(all)
	return all[min(max(d.Size/2, 1), len(all))-1]
}

func (d *delays) check() Finding {
	figures := d.describe()
	if len(d.Members) == 0 {
		return Finding{Level: OK, Message: "No answers to heartbeats were measured yet. " + figures}
	}
	heartbeat := millis(d.Timing.HeartbeatMillis)
	ofMajority := heartbeat + d.ofMajority(d.margin)
	suspicionTimeout, lease := d.longestTiming(ofMajority)
	worst := slices.MaxFunc(d.Members, func(a, b MemberAnswers) int { return cmp.Compare(d.margin(&a), d.margin(&b)) })
	var short, advice string
	if needed := heartbeat + d.margin(&worst); needed > suspicionTimeout {
		short = fmt.Sprintf("The suspicion timeout is too short for the answers of %s", worst.Pod)
		figures = (&delays{Measurement: Measurement{Timing: d.Timing, Members: []MemberAnswers{worst}}}).describe()
		advice = fmt.Sprintf("set spec.timing.suspicionTimeoutMillis to at least %d", roundUp(needed))
	}
	if lease > 0 && ofMajority > lease-lease/leaseMargin {
		leaseAdvice := fmt.Sprintf("spec.safety.leaseMillis to at least %d", roundUp(ofMajority*leaseMargin/(leaseMargin-1)))
		if short == "" {
			short, advice = "The lease is too short for the answers of a majority", "set "+leaseAdvice
		} else {
			short, advice = "The suspicion timeout and the lease are too short for the answers of a majority",
				advice+", and "+leaseAdvice
		}
	}
	if short == "" {
		return Finding{Level: OK, Message: figures + d.grown()}
	}
	return Finding{
		Level: Warning, Message: short + ". " + figures,
		Advice: "Find out what delays agents, such as a CPU limit, the network or a busy node, or " + advice + ".",
	}
}

// grown says that leases are longer than the user has configured nearly always, or returns "": the coordinator requests
// at least three times the age of the last renewal, just before the next one (office.leasePerAge).
func (d *delays) grown() string {
	t, heartbeat := d.Timing, millis(d.Timing.HeartbeatMillis)
	answer := d.ofMajority(func(a *MemberAnswers) time.Duration { return micros(a.P99Micros) })
	lease := min(3*(answer.Truncate(heartbeat)+heartbeat), millis(t.LongestLeaseMillis))
	if lease <= millis(t.LeaseMillis) || t.LeaseMillis == 0 {
		return ""
	}
	return fmt.Sprintf(" A majority often answers so late that leases last %d ms, and a silent node is noticed as late.",
		lease.Milliseconds())
}

// roundUp returns a duration in milliseconds, rounded up to two digits.
func roundUp(d time.Duration) int64 {
	n, unit := (d + time.Millisecond - 1).Milliseconds(), int64(1)
	for n/unit >= 100 {
		unit *= 10
	}
	return (n + unit - 1) / unit * unit
}

// describe returns the figures in words.
func (d *delays) describe() string {
	t := &d.Timing
	text := fmt.Sprintf("Heartbeat %d ms, suspicion timeout %s", t.HeartbeatMillis,
		growing(t.SuspicionTimeoutMillis, t.LongestSuspicionTimeoutMillis))
	if t.LeaseMillis > 0 {
		text += fmt.Sprintf(", lease %s", growing(t.LeaseMillis, t.LongestLeaseMillis))
	}
	if len(d.Members) == 0 {
		return text + "."
	}
	p99, slowest := int64(0), d.slowest()
	for i := range d.Members {
		p99 = max(p99, d.Members[i].P99Micros)
	}
	return fmt.Sprintf("99 %% of the answers took up to %s ms, the longest %s ms (%s). %s.",
		inMillis(p99), inMillis(slowest.LongestMicros), slowest.Pod, text)
}

// growing formats a time that becomes longer while renewals are late.
func growing(usual, longest int64) string {
	if longest <= usual {
		return fmt.Sprintf("%d ms", usual)
	}
	return fmt.Sprintf("%d to %d ms", usual, longest)
}

// inMillis formats microseconds as milliseconds, with a decimal below 10.
func inMillis(micros int64) string {
	if micros < 10_000 {
		return fmt.Sprintf("%.1f", float64(micros)/1000)
	}
	return fmt.Sprint((micros + 500) / 1000)
}
