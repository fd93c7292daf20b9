package control

import (
	"bytes"
	"fmt"
	"time"
)

// Agent describes an agent.
type Agent struct {
	Pod string `json:"pod"`
	// Life is the incarnation: it distinguishes this run of the agent from its others.
	Life uint32 `json:"life"`
	// Build is the version of the agent's binary.
	Build string `json:"build,omitempty"`
	// Groups are those that the pod named when it was created. The agent joins these on request, and no others.
	Groups []string `json:"groups"`
	// Identity is that of the agent's state directory: see FormatIdentity.
	Identity string `json:"identity"`
}

// Report is the state of one group as its agent sees it.
type Report struct {
	Group string `json:"group"`
	Pod   string `json:"pod"`
	// UID, Generation, and Revision are those of the Document that the agent uses.
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	Revision   int64  `json:"revision"`
	// Version is that of the member list that the agent has adopted. Digest tells two
	// lists apart that have the same version, or different previous lists.
	Version uint32 `json:"version"`
	Digest  string `json:"digest"`

	// Coordinator is empty while there is none.
	Coordinator string `json:"coordinator,omitempty"`
	Term        uint64 `json:"term"`
	// UsedTerm is the highest term that the agent has granted or claimed. It may be of a newer list than that of the
	// agent: it has granted a claim under such a list, which may be a false one.
	UsedTerm uint64 `json:"usedTerm"`
	// ElectedAt is when the agent first learned of this coordinator in this term.
	ElectedAt time.Time `json:"electedAt,omitzero"`
	Electing  bool      `json:"electing,omitempty"`
	// TooSlow is set while there is no coordinator because the members answer too slowly.
	TooSlow *TooSlow `json:"tooSlow,omitempty"`
	// Ended is the end of the last tenure that the agent has observed, or nil.
	Ended *Ending `json:"ended,omitempty"`
	// Eligible: the member may be elected. Ineligible is why not, as text, and IneligibleSince when
	// this reason began. Excluded: the operator has made it ineligible.
	Eligible        bool      `json:"eligible"`
	Ineligible      string    `json:"ineligible,omitempty"`
	IneligibleSince time.Time `json:"ineligibleSince,omitzero"`
	Excluded        bool      `json:"excluded,omitempty"`

	// Retired is the identity that the state directory had, if the only member of the group ends, and none of its grants
	// is in force. It has given up the identity, so nobody has to wait for what it has granted.
	Retired string `json:"retired,omitempty"`

	// ShortTenures is the number of short tenures in a row because of which the process is held
	// back: for PenaltySeconds, it doesn't take over from a coordinator. Without a penalty both are 0.
	ShortTenures   int   `json:"shortTenures,omitempty"`
	PenaltySeconds int64 `json:"penaltySeconds,omitempty"`
	// PauseSeconds is for how long the process, as coordinator, hands over to no higher one because of lapses, or 0.
	PauseSeconds int64 `json:"pauseSeconds,omitempty"`

	// Processes are the process status table, highest priority first. If OnlyUnusual is
	// set, the usual rows are left out: those of all other members of the list.
	Processes   []Row `json:"processes"`
	OnlyUnusual bool  `json:"onlyUnusual,omitempty"`
	// Problems are the reasons why the agent isn't ready, in this group or as a whole.
	Problems []string `json:"problems,omitempty"`
	// ChangedAt is when the agent learned of the latest change in this report.
	ChangedAt time.Time `json:"changedAt"`
}

// TooSlow is why an agent does not become coordinator although a majority would grant it that.
type TooSlow struct {
	// RoundTripMicros is the time until the members answered, and LimitMicros the longest one with which a
	// coordinator can renew its lease.
	RoundTripMicros int64 `json:"roundTripMicros"`
	LimitMicros     int64 `json:"limitMicros"`
}

// Ending is what an agent observed when a tenure ended.
type Ending struct {
	// Coordinator and Term identify the tenure.
	Coordinator string   `json:"coordinator"`
	Term        uint64   `json:"term"`
	Cause       EndCause `json:"cause"`
	// At is when the agent learned of the end.
	At time.Time `json:"at"`
	// GapMicros is the time without a coordinator until the agent recognized the next one, in microseconds. It is nil
	// while there is none, or if the agent learned of the end only from the next coordinator. If the coordinator was
	// silent, it includes the time since its last message.
	GapMicros *int64 `json:"gapMicros,omitempty"`
}

// Row is a row of the process status table.
type Row struct {
	Name     string `json:"name"`
	Priority uint32 `json:"priority"`
	// Status is Coordinator, Normal or Crashed.
	Status    string `json:"status"`
	Connected bool   `json:"connected"`
}

func (r *Row) unusual() bool { return r.Status == rowCrashed || !r.Connected }

const rowCrashed = "Crashed"

// WithoutUsualRows returns the report as agents send it to the operator. The tables of all agents grow with the square
// of their number, and nearly all rows say that all is well. It doesn't change the rows of r.
func (r Report) WithoutUsualRows() Report {
	var rows []Row
	for i := range r.Processes {
		if r.Processes[i].unusual() {
			rows = append(rows, r.Processes[i])
		}
	}
	r.Processes, r.OnlyUnusual = rows, true
	return r
}

// Left reports that an agent has left a group.
type Left struct {
	Group string `json:"group"`
	UID   string `json:"uid"`
}

// The limits of a report. They bound the memory that it takes, and what of it becomes part of a status.
const (
	// maxRows is the number of members that a group can have.
	maxRows = 100
	// maxText is the length of the longest name.
	maxText = 253
	// maxIneligible is the length of the longest reason. It is part of a message in the status.
	maxIneligible = 128
	// minYear and maxYear are those of the times that the API server accepts.
	minYear = 1
	maxYear = 9999
)

// CheckElements returns an error if the JSON of a report has so many elements that it takes far more memory than text:
// a row takes 3 bytes in JSON, and a hundred in memory. It reads the text only, and counts those in strings, too.
func CheckElements(json []byte) error {
	const maxObjects, maxElements = maxRows + 16, 16 * maxRows // a row has seven fields
	if objects, elements := bytes.Count(json, []byte("{")),
		bytes.Count(json, []byte(",")); objects > maxObjects || elements > maxElements {
		return fmt.Errorf("report must have at most %d objects and %d elements, got %d and %d", maxObjects,
			maxElements, objects, elements)
	}
	return nil
}

// Check returns what is wrong with a report. The agent may be hostile.
func (r *Report) Check() error {
	if rows := len(r.Processes); rows > maxRows {
		return fmt.Errorf("report must have at most %d rows, got %d", maxRows, rows)
	}
	if length := len(r.Ineligible); length > maxIneligible {
		return fmt.Errorf("the reason why a member is ineligible must have at most %d bytes, got %d", maxIneligible, length)
	}
	texts := []string{r.UID, r.Digest, r.Coordinator, r.Retired}
	times := []time.Time{r.ElectedAt, r.ChangedAt, r.IneligibleSince}
	if e := r.Ended; e != nil {
		texts, times = append(texts, e.Coordinator), append(times, e.At)
	}
	for i := range r.Processes {
		texts = append(texts, r.Processes[i].Name, r.Processes[i].Status)
	}
	for _, text := range texts {
		if len(text) > maxText {
			return fmt.Errorf("each text of a report must have at most %d bytes, got %d", maxText, len(text))
		}
	}
	for _, at := range times {
		if year := at.UTC().Year(); year < minYear || year > maxYear {
			return fmt.Errorf("each time of a report must be in the years %d to %d, got %d", minYear, maxYear, year)
		}
	}
	return nil
}

// Size returns about how many bytes the table of a report takes.
func (r *Report) Size() (bytes int) {
	const row = 56 // without its texts
	for i := range r.Processes {
		bytes += row + len(r.Processes[i].Name) + len(r.Processes[i].Status)
	}
	return bytes
}

// TimingInForce is what an agent reports of the timing that is in force in a group.
type TimingInForce struct {
	HeartbeatMillis        int64 `json:"heartbeatMillis"`
	SuspicionTimeoutMillis int64 `json:"suspicionTimeoutMillis"`
	// LeaseMillis is 0 in Available mode, which has no lease.
	LeaseMillis int64 `json:"leaseMillis,omitempty"`
}

// SessionStatus is what an agent reports of an open session of its application, on request.
type SessionStatus struct {
	// Leads: it was asked to lead, and hasn't confirmed that it has stopped.
	Leads    bool      `json:"leads"`
	OpenedAt time.Time `json:"openedAt"`
	// RenewedAt is when it last asked whether it leads, and zero before the first time. RenewedMillisAgo
	// is how long ago that was, whatever the clock of the reader.
	RenewedAt        time.Time `json:"renewedAt,omitzero"`
	RenewedMillisAgo *int64    `json:"renewedMillisAgo,omitempty"`
}

// String describes the session, as in "leads, opened 2026-11-20 12:37:12 UTC, last renewed 0.2 s ago".
func (s *SessionStatus) String() string {
	state, renewed := "waits", "never renewed"
	if s.Leads {
		state = "leads"
	}
	if s.RenewedMillisAgo != nil {
		renewed = fmt.Sprintf("last renewed %.1f s ago", float64(*s.RenewedMillisAgo)/1000)
	}
	return fmt.Sprintf("%s, opened %s, %s", state, formatTime(s.OpenedAt), renewed)
}

func formatTime(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }
