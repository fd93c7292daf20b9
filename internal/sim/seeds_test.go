package sim_test

import (
	"strings"
	"testing"

	"github.com/conclave-dev/conclave/internal/sim"
)

// seeds are the seeds of schedules that violate an invariant if the code has a
// certain bug, and are too rare for a short sampling. TestMutantsAreCaught injects
// the bugs. With later changes of the elections, some of these schedules have another
// history, and another test catches the bug.
var seeds = []struct {
	detects   string
	algorithm string
	mode      string
	faults    string
	seed      uint64
	processes int
}{
	{"a late resignation", "StatusTable", "Majority", "delay,reorder,duplicate,partition,stepdown", 22804, 5},
	{"a list that is adopted too early", "StatusTable", "Strict", "crash,pause,partition,members", 3661, 5},
	{"a term that was used before", "StatusTable", "Available", "delay,crash,partition", 2769, 5},
	{"a member that is eligible although its application has died", "StatusTable", "Majority", "appdead,stepdown", 370, 5},
	{"a grant too soon after a late join", "StatusTable", "Strict", "crash,pause,partition", 50951, 3},
	{"a grant after a restart", "StatusTable", "Strict", "crash,pause,partition,stepdown", 673, 3},
	{"a tenure without a majority of the old member list", "StatusTable", "Majority", "crash,partition,members", 19574, 5},
	{"an answer that counts as a sign of tenure", "StatusTable", "Majority", "loss,delay,reorder,duplicate,crash,appdead,pause,partition,clocks,members,stepdown,leases", 53406, 5},
	{"a claim that nobody competes with, and that is refused", "StatusTable", "Majority", "crash,members,graph,jump,disk,skew", 125168, 5},
	{"a list on disk that is older than the adopted one", "StatusTable", "Majority", "crash,partition,members,disk,deep", 112968, 3},
	{"a late grant that hides a term from a process that recovers", "RingSkip", "Majority", "all", 12022463326, 3},
	{"a wait for a term that isn't needed any more", "RingChampion", "Majority", "all", 14050509893, 3},
	{"hand-overs, again and again, to a process that gives up its claim for one in a newer term", "RingActiveList", "Majority", "all,settings", 17094328512, 3},
	{"a coordinator with longer heartbeats than its members expect", "RingSkip", "Majority", "all,settings", 16002009808, 3},
	{"a grant that a later one shortens", "StatusTable", "Majority", "pause,settings", 7801, 5},
	{"a coordinator that acquires what it can't renew, again and again", "StatusTable", "Majority", "latency", 5, 5},
	{"a coordinator that is slow from time to time, and leads again each time", "StatusTable", "Majority", "throttle", 1, 5},
	{"an application that fails each time soon after it leads", "StatusTable", "Majority", "failing", 1, 5},
	{"a coordinator that is removed and loses its drain time", "StatusTable", "Majority", "members,stepdown,drains", 142, 5},
	{"a coordinator that is removed, and loses its drain time to a second list", "StatusTable", "Majority", "members,stepdown,drains", 428, 3},
	{"two processes that have stepped down while the third one has crashed", "StatusTable", "Majority", "crash,stepdown,drains", 3761, 3},
	{"claims that end each other, again and again after equal delays", "RingAllIDs", "Majority", "settings,latency,grow", 4, 2},
	{"claims that use up the terms of clocks that are behind the floor", "StatusTable", "Majority", "skew,operator,burst", 2, 5},
	{"elections that fail and use up the terms of clocks that are behind the floor", "RingActiveList", "Majority", "crash,loss,delay,operator,burst,rejoin", 57571, 4},
	{"a late message that hides a higher process", "Bully", "Majority", "skew,tail", 400011160, 3},
	{"a refusal of a member whose clock doesn't permit the next term", "RingChampion", "Strict", soakFaults + ",few", 71003164561, 2},
	{"a claim of the term of an election that is too low for a member without memory", "RingChampion", "Strict", soakFaults + ",few", 80001306243, 2},
	{"a coordinator that is removed, and renews only a heartbeat after it knows", "RingChampion", "Strict", soakFaults + ",few", 74025698310, 2},
	{"a group in which two lost messages end each tenure", "StatusTable", "Strict", soakFaults + ",few", 74016551172, 2},
	{"a process that has restarted and knows too few lapses", "RingSkip", "Majority", soakFaults + ",few", 74029078468, 6},
	{"hand-overs that add to each lapse", "RingSkip", "Majority", soakFaults, 7001064902, 3},
	{"a lapse of a coordinator that has been silent before", "RingActiveList", "Strict", soakFaults, 7009246022, 5},
	{"members that remember, but are cut off", "RingAllIDs", "Strict", soakFaults, 7008970223, 5},
	{"a group that only a slow process can lead", "Bully", "Strict", soakFaults, 7022857607, 3},
	{"a group of one process that waits for its clock", "StatusTable", "Strict", soakFaults + ",few", 13479, 4},
	{"a majority without a process that is cut off", "RingActiveList", "Majority", soakFaults + ",few", 60001147569, 3},
	{"a coordinator that adopts a list long after the others", "RingSkip", "Majority", soakFaults + ",few", 60001177230, 3},
	{"a process that remembers only what it had not recovered", "RingAllIDs", "Strict", soakFaults + ",few", 63004948094, 5},
	{"a lapse during a hand-over", "StatusTable", "Majority", soakFaults, 64007539265, 5},
	{"an application that fails while messages are late", "RingAllIDs", "Majority", soakFaults, 70004017539, 4},
	{"a coordinator that stands still again when hand-overs go on", "RingActiveList", "Majority", soakFaults, 70011618117, 3},
	{"late answers, and some that are later", "RingActiveList", "Majority", soakFaults, 70011660545, 3},
	{"late messages on slow links", "RingActiveList", "Majority", soakFaults + ",few", 108001705732, 5},
	{"late answers of which some are lost", "RingActiveList", "Majority", soakFaults, 62000923780, 3},
}

// soakFaults are those of make soak, which also sets few.
const soakFaults = "all,settings,recovery,late,correct,latency,lossy,throttle,failing,drains,operator,burst,mixed,rejoin,grow,tail,redial"

func TestSeedsThatFoundBugs(t *testing.T) {
	for _, s := range seeds {
		t.Run(s.detects, func(t *testing.T) {
			sample(t, sim.Sampling{
				Algorithm: s.algorithm, Processes: s.processes, Safety: s.mode, Faults: strings.Split(s.faults, ","),
				Schedules: 1, Seed: s.seed,
			})
		})
	}
}
