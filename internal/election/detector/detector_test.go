package detector_test

import (
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/detector"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

const timeout election.Tick = 10

// newDetector returns a detector that watches ids from the moment 0.
func newDetector(ids ...election.ID) *detector.Detector {
	var d detector.Detector
	d.Reset(timeout)
	for _, id := range ids {
		d.Watch(id, 0)
	}
	return &d
}

// allOverdue returns all processes that are overdue now.
func allOverdue(d *detector.Detector, now election.Tick) (ids election.IDs) {
	for id := d.Overdue(now); id != election.None; id = d.Overdue(now) {
		ids = append(ids, id)
	}
	return ids
}

func wantIDs(t *testing.T, what string, got, want election.IDs) {
	t.Helper()
	expect.EqualSlicesf(t, got, want, "%s", what)
}

func TestSilenceIsDetectedAfterTimeout(t *testing.T) {
	d := newDetector(1, 2)
	expect.Equalf(t, d.Deadline(), timeout, "first deadline")
	wantIDs(t, "a tick early", allOverdue(d, timeout-1), nil)
	d.Observe(2, 4)
	wantIDs(t, "at the timeout", allOverdue(d, timeout), election.IDs{1})
	expect.Equalf(t, d.Deadline(), 4+timeout, "next deadline")
	wantIDs(t, "the other process", allOverdue(d, 4+timeout), election.IDs{2})
	wantIDs(t, "once each", allOverdue(d, 100), nil)
	wantIDs(t, "suspects", d.All(), election.IDs{1, 2})
	expect.Equalf(t, d.Deadline(), election.Never, "without unsuspected processes: deadline")
}

func TestRestoredProcessIsSuspectedAgain(t *testing.T) {
	d := newDetector(1, 2)
	wantIDs(t, "silent", allOverdue(d, timeout), election.IDs{1, 2})
	expect.Equalf(t, d.Observe(1, 50), true, "first sign of life of a suspect")
	expect.Equalf(t, d.Observe(1, 51), false, "second sign of life")
	expect.AtMostf(t, d.Deadline(), 51+timeout, "deadline")
	wantIDs(t, "a tick early", allOverdue(d, 51+timeout-1), nil)
	wantIDs(t, "silent again", allOverdue(d, 51+timeout), election.IDs{1})
}

func TestSuspectIsNotOverdue(t *testing.T) {
	d := newDetector(1, 2)
	if !d.Suspect(1) || d.Suspect(1) {
		t.Error("got a wrong result of Suspect, want true once")
	}
	if !d.Suspects(1) || d.Suspects(2) {
		t.Error("got the wrong suspect, want 1")
	}
	wantIDs(t, "silent", allOverdue(d, timeout), election.IDs{2})
}

func TestUnwatchedProcessIsNeverOverdue(t *testing.T) {
	d := newDetector(1, 2)
	d.Suspect(1)
	d.Unwatch(timeout)
	d.Observe(2, 5)
	wantIDs(t, "silent", allOverdue(d, 100), nil)
	wantIDs(t, "suspects", d.All(), election.IDs{1})
	d.Watch(2, 100)
	wantIDs(t, "before the whole timeout", allOverdue(d, 100+timeout-1), nil)
	wantIDs(t, "silent", allOverdue(d, 100+timeout), election.IDs{2})
	expect.Equalf(t, d.Observe(7, 100), false, "sign of life of a suspect that isn't watched")
}

func TestRetainRemovesOthers(t *testing.T) {
	d := newDetector(1, 2, 3)
	d.Suspect(1)
	d.Suspect(2)
	d.Retain(func(id election.ID) bool { return id == 2 })
	wantIDs(t, "suspects", d.All(), election.IDs{2})
	wantIDs(t, "silent", allOverdue(d, 100), nil)
}

func TestResetRemovesSuspectsAndWatches(t *testing.T) {
	d := newDetector(1, 2)
	d.Suspect(1)
	d.Reset(timeout)
	wantIDs(t, "suspects", d.All(), nil)
	wantIDs(t, "silent", allOverdue(d, 100), nil)
}

func TestCloneIsIndependent(t *testing.T) {
	d := newDetector(1, 2)
	d.Suspect(1)
	c := d.Clone()
	c.Observe(1, 5)
	c.Observe(2, 5)
	wantIDs(t, "suspects", d.All(), election.IDs{1})
	wantIDs(t, "silent", allOverdue(d, timeout), election.IDs{2})
	wantIDs(t, "in the copy", allOverdue(&c, timeout), nil)
}

// States that behave alike from now on have the same encoding at any moment.
func TestEncodingIsRelativeToNow(t *testing.T) {
	encode := func(lastSeen, now election.Tick, suspects ...election.ID) string {
		var d detector.Detector
		d.Reset(timeout)
		for _, id := range []election.ID{1, 2} {
			d.Watch(id, lastSeen)
		}
		for _, id := range suspects {
			d.Suspect(id)
		}
		if len(suspects) == 2 {
			wantIDs(t, "silent", allOverdue(&d, lastSeen+timeout), nil) // there is no further deadline
		}
		return string(d.Encode(nil, now))
	}
	expect.Equalf(t, encode(3, 5), encode(103, 105), "encodings at two moments")
	expect.Equalf(t, encode(3, 5) == encode(3, 6), false, "silences of different length have equal encodings")
	if encode(3, 5) == encode(3, 5, 1) || encode(3, 5, 1) == encode(3, 5, 2) {
		t.Error("got equal encodings of different suspects, want different ones")
	}
	expect.Equalf(t, encode(3, 5, 1, 2), encode(4, 5, 1, 2), "encodings without the last signs of life of suspects")
	early, late := newDetector(1, 2), newDetector(1, 2)
	for _, d := range []*detector.Detector{early, late} {
		d.Observe(1, 5)
		d.Observe(2, 5)
	}
	wantIDs(t, "silent", allOverdue(late, timeout), nil)
	expect.Equalf(t, string(early.Encode(nil, timeout)) == string(late.Encode(nil, timeout)), false,
		"equal encodings before and after a check without effect")
}

// A follower watches only its coordinator, which sends signs of life regularly.
// The deadline is never before the timeout.
func TestFollowerHasNoIntermediateDeadlines(t *testing.T) {
	for name, d := range map[string]*detector.Detector{
		"watching one":          newDetector(1),
		"watching it twice":     newDetector(1, 1),
		"watching others first": newDetector(1, 2, 3),
		"with others removed":   newDetector(1, 2, 3),
	} {
		switch name {
		case "watching others first":
			d.Unwatch(timeout)
			d.Watch(1, 0)
		case "with others removed":
			d.Retain(func(id election.ID) bool { return id == 1 })
		}
		d.Observe(1, 4)
		expect.Equalf(t, d.Deadline(), 4+timeout, "%s: deadline", name)
	}
}

// The next deadline is when the first watched process could be overdue, whichever process was watched or observed last.
func TestDeadlineIsThatOfFirstProcessOverdue(t *testing.T) {
	d := newDetector(1, 2)
	d.Watch(3, 5)
	expect.Equalf(t, d.Deadline(), timeout, "with a third process watched later: deadline")
	d.Observe(1, 3)
	d.Observe(2, 6)
	wantIDs(t, "none yet", allOverdue(d, timeout), nil)
	expect.Equalf(t, d.Deadline(), 3+timeout, "second deadline")
	wantIDs(t, "all", allOverdue(d, 100), election.IDs{1, 2, 3})
	d.Observe(1, 100)
	expect.Equalf(t, d.Deadline(), 100+timeout, "after all were suspects and 1 sent a sign of life: deadline")
}

func TestRetainKeepsWatching(t *testing.T) {
	d := newDetector(1, 2, 3)
	d.Retain(func(id election.ID) bool { return id != 2 })
	wantIDs(t, "silent", allOverdue(d, 100), election.IDs{1, 3})
	if d.Observe(4, 100) { // the ID after the last one that was ever watched
		t.Error("got a suspect that isn't watched, want none")
	}
}

func TestForgivenProcessIsSuspectedLater(t *testing.T) {
	const grace = 4
	d := newDetector(1, 2)
	d.Observe(2, 9)
	d.Postpone(30, grace)
	wantIDs(t, "during the grace period", allOverdue(d, 30+grace-1), nil)
	wantIDs(t, "after the grace period", allOverdue(d, 30+grace), election.IDs{1, 2})
}

func TestProcessIsForgivenOncePerSignOfLife(t *testing.T) {
	const grace = 4
	d := newDetector(1)
	d.Postpone(30, grace)
	d.Postpone(33, grace)
	wantIDs(t, "postponed again", allOverdue(d, 30+grace), election.IDs{1})
	d.Observe(1, 50)
	d.Postpone(70, grace)
	wantIDs(t, "after a sign of life", allOverdue(d, 70+grace-1), nil)
	d.Postpone(75, grace)
	wantIDs(t, "and then silent", allOverdue(d, 75), election.IDs{1})
}

func TestProcessWithTimeLeftIsNotForgiven(t *testing.T) {
	d := newDetector(1)
	d.Postpone(2, 4)
	wantIDs(t, "at the timeout", allOverdue(d, timeout), election.IDs{1})
}
