package detector_test

import (
	"slices"
	"testing"

	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/election/detector"
)

const patience election.Tick = 10

// watching is a detector that watches ids from the moment 0.
func watching(ids ...election.ID) *detector.Detector {
	var d detector.Detector
	d.Reset(patience)
	for _, id := range ids {
		d.Watch(id, 0)
	}
	return &d
}

// overdue takes all who are overdue now.
func overdue(d *detector.Detector, now election.Tick) (ids election.IDs) {
	for id := d.Overdue(now); id != election.None; id = d.Overdue(now) {
		ids = append(ids, id)
	}
	return ids
}

func want(t *testing.T, what string, got, want election.IDs) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestSilenceIsNoticedWhenPatienceIsOverAndNotBefore(t *testing.T) {
	d := watching(1, 2)
	if got := d.Deadline(); got != patience {
		t.Errorf("the first look is at %d, want %d", got, patience)
	}
	want(t, "a tick early", overdue(d, patience-1), nil)
	d.Observe(2, 4)
	want(t, "when it is over", overdue(d, patience), election.IDs{1})
	if got := d.Deadline(); got != 4+patience {
		t.Errorf("the next look is at %d, want %d", got, 4+patience)
	}
	want(t, "the other one's", overdue(d, 4+patience), election.IDs{2})
	want(t, "once each", overdue(d, 100), nil)
	want(t, "suspects", d.All(), election.IDs{1, 2})
	if d.Deadline() != election.Never {
		t.Errorf("with nobody left to suspect it asks for a tick at %d", d.Deadline())
	}
}

func TestAProcessThatWasHeardOfAgainIsSuspectedWhenItFallsSilentAgain(t *testing.T) {
	d := watching(1, 2)
	want(t, "silent", overdue(d, patience), election.IDs{1, 2})
	if !d.Observe(1, 50) {
		t.Error("a suspect's sign of life isn't news")
	}
	if d.Observe(1, 51) {
		t.Error("its second sign of life is news")
	}
	if got := d.Deadline(); got > 51+patience {
		t.Errorf("it asks for a tick at %d, after the silence", got)
	}
	want(t, "a tick early", overdue(d, 51+patience-1), nil)
	want(t, "silent again", overdue(d, 51+patience), election.IDs{1})
}

func TestSomeoneSuspectedOnOtherEvidenceIsntFoundSilentToo(t *testing.T) {
	d := watching(1, 2)
	if !d.Suspect(1) || d.Suspect(1) {
		t.Error("the suspicion is news once")
	}
	if !d.Suspects(1) || d.Suspects(2) {
		t.Error("the wrong one is a suspect")
	}
	want(t, "silent", overdue(d, patience), election.IDs{2})
}

func TestWhoIsntWatchedIsNeverOverdue(t *testing.T) {
	d := watching(1, 2)
	d.Suspect(1)
	d.Unwatch(patience)
	d.Observe(2, 5)
	want(t, "silent", overdue(d, 100), nil)
	want(t, "suspects", d.All(), election.IDs{1})
	d.Watch(2, 100)
	want(t, "given the whole patience", overdue(d, 100+patience-1), nil)
	want(t, "silent", overdue(d, 100+patience), election.IDs{2})
	if d.Observe(7, 100) {
		t.Error("a stranger was a suspect")
	}
}

func TestWhoIsntKeptIsForgotten(t *testing.T) {
	d := watching(1, 2, 3)
	d.Suspect(1)
	d.Suspect(2)
	d.Retain(func(id election.ID) bool { return id == 2 })
	want(t, "suspects", d.All(), election.IDs{2})
	want(t, "silent", overdue(d, 100), nil)
}

func TestADetectorThatIsOpenedAgainSuspectsAndWatchesNobody(t *testing.T) {
	d := watching(1, 2)
	d.Suspect(1)
	d.Reset(patience)
	want(t, "suspects", d.All(), nil)
	want(t, "silent", overdue(d, 100), nil)
}

func TestACopyOfADetectorIsIndependent(t *testing.T) {
	d := watching(1, 2)
	d.Suspect(1)
	c := d.Clone()
	c.Observe(1, 5)
	c.Observe(2, 5)
	want(t, "suspects", d.All(), election.IDs{1})
	want(t, "silent", overdue(d, patience), election.IDs{2})
	want(t, "the copy's", overdue(&c, patience), nil)
}

// States that behave alike from now on are encoded alike, whenever now is.
func TestADetectorIsEncodedAsSeenFromNow(t *testing.T) {
	encode := func(heard, now election.Tick, suspects ...election.ID) string {
		var d detector.Detector
		d.Reset(patience)
		for _, id := range []election.ID{1, 2} {
			d.Watch(id, heard)
		}
		for _, id := range suspects {
			d.Suspect(id)
		}
		if len(suspects) == 2 {
			want(t, "silent", overdue(&d, heard+patience), nil) // and looks no more
		}
		return string(d.Encode(nil, now))
	}
	if encode(3, 5) != encode(103, 105) {
		t.Error("a later moment is another state")
	}
	if encode(3, 5) == encode(3, 6) {
		t.Error("a silence that is longer is the same state")
	}
	if encode(3, 5) == encode(3, 5, 1) || encode(3, 5, 1) == encode(3, 5, 2) {
		t.Error("other suspects are the same state")
	}
	if encode(3, 5, 1, 2) != encode(4, 5, 1, 2) {
		t.Error("when a suspect was last heard makes another state")
	}
	early, late := watching(1, 2), watching(1, 2)
	for _, d := range []*detector.Detector{early, late} {
		d.Observe(1, 5)
		d.Observe(2, 5)
	}
	want(t, "silent", overdue(late, patience), nil)
	if string(early.Encode(nil, patience)) == string(late.Encode(nil, patience)) {
		t.Error("a look for nothing that is still to come is the same state as one that was taken")
	}
}

// A follower watches its coordinator alone, which is heard of all the time: it asks
// for no tick before the silence could be complete.
func TestAFollowerAsksForNoTickInBetween(t *testing.T) {
	for name, d := range map[string]*detector.Detector{
		"watching one":          watching(1),
		"told of it twice":      watching(1, 1),
		"watching others first": watching(1, 2, 3),
		"with others forgotten": watching(1, 2, 3),
	} {
		switch name {
		case "watching others first":
			d.Unwatch(patience)
			d.Watch(1, 0)
		case "with others forgotten":
			d.Retain(func(id election.ID) bool { return id == 1 })
		}
		d.Observe(1, 4)
		if got := d.Deadline(); got != 4+patience {
			t.Errorf("%s: the first look is at %d, want %d", name, got, 4+patience)
		}
	}
}

// The next look is when the first of those that are watched could be overdue,
// whoever is watched or heard of last.
func TestTheFirstWhoCouldBeOverdueDecidesWhenToLook(t *testing.T) {
	d := watching(1, 2)
	d.Watch(3, 5)
	if got := d.Deadline(); got != patience {
		t.Errorf("with a third one watched later, the first look is at %d, want %d", got, patience)
	}
	d.Observe(1, 3)
	d.Observe(2, 6)
	want(t, "nobody yet", overdue(d, patience), nil)
	if got := d.Deadline(); got != 3+patience {
		t.Errorf("the second look is at %d, want %d", got, 3+patience)
	}
	want(t, "all", overdue(d, 100), election.IDs{1, 2, 3})
	d.Observe(1, 100)
	if got := d.Deadline(); got != 100+patience {
		t.Errorf("after all were suspects and 1 was heard of, the next look is at %d, want %d", got, 100+patience)
	}
}

func TestWhoIsKeptIsStillWatched(t *testing.T) {
	d := watching(1, 2, 3)
	d.Retain(func(id election.ID) bool { return id != 2 })
	want(t, "silent", overdue(d, 100), election.IDs{1, 3})
	if d.Observe(4, 100) { // right behind the last that was ever watched
		t.Error("a stranger was a suspect")
	}
}
