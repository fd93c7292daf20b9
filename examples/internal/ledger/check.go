package ledger

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
)

// Verdict is the result of a check.
type Verdict struct {
	OK bool `json:"ok"`
	// Violation is the first violation, with its line.
	Violation string `json:"violation,omitempty"`
	Lines     int    `json:"lines"`
	// Claims counts the claims, Tokens the different tokens, and Processes the writers.
	Claims    int `json:"claims"`
	Tokens    int `json:"tokens"`
	Processes int `json:"processes"`
	// Writes is the number of the last write of each resource.
	Writes map[string]uint64 `json:"writes"`
}

// String returns the verdict in one line.
func (v *Verdict) String() string {
	if !v.OK {
		return "violated: " + v.Violation
	}
	return fmt.Sprintf(
		"holds: no gap, no duplicate and no stale write in %d writes to %d resources, by %d processes with %d tokens",
		v.Total(), len(v.Writes), v.Processes, v.Tokens)
}

// Total is the number of writes to all resources.
func (v *Verdict) Total() (writes uint64) {
	for _, count := range v.Writes {
		writes += count
	}
	return writes
}

// Checker checks the lines of a ledger. It shares no code with the server, which rejects
// entries: it also finds what a storage without a fencing check has accepted.
type Checker struct {
	verdict   Verdict
	last      map[string]Entry
	tokens    map[uint64]bool
	processes map[string]bool
}

// NewChecker returns a Checker that has read no line.
func NewChecker() *Checker {
	return &Checker{
		verdict: Verdict{OK: true, Writes: map[string]uint64{}},
		last:    map[string]Entry{}, tokens: map[uint64]bool{}, processes: map[string]bool{},
	}
}

// Read checks all lines of r. It continues where the previous call ended.
func (c *Checker) Read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("line %d of the ledger is incomplete: %w", c.verdict.Lines+1, err)
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("line %d of the ledger is invalid: %w", c.verdict.Lines+1, err)
		}
		c.check(&e)
	}
}

// Verdict returns the result for all lines read so far.
func (c *Checker) Verdict() Verdict {
	verdict := c.verdict
	verdict.Writes = maps.Clone(verdict.Writes) // The caller may encode it while further lines are read.
	verdict.Tokens, verdict.Processes = len(c.tokens), len(c.processes)
	return verdict
}

func (c *Checker) check(e *Entry) {
	c.verdict.Lines++
	if e.Violation != "" {
		c.fail("%s reports: %s", e.By, e.Violation)
		return
	}
	last := c.last[e.Resource]
	right := fmt.Sprintf("%s wrote %s %d with right %d.%d", e.By, e.Resource, e.Seq, e.Token, e.Grant)
	switch older := e.Token < last.Token || e.Token == last.Token && e.Grant < last.Grant; {
	case older:
		c.fail("stale write: %s after %d.%d of %s", right, last.Token, last.Grant, last.By)
	case e.Token == last.Token && e.Grant == last.Grant && e.By != last.By:
		c.fail("two processes with the same right: %s, and so did %s", right, last.By)
	case e.Token == last.Token && e.Grant == last.Grant && e.Run != last.Run && !e.Claim:
		c.fail("two runs of one process with the same right: %s, which has claimed it again", right)
	case e.Claim && e.Seq != last.Seq:
		c.fail("wrong claim: %s after %d", right, last.Seq)
	case e.Claim:
	case e.Seq <= last.Seq:
		c.fail("duplicate: %s after %d", right, last.Seq)
	case e.Seq > last.Seq+1:
		c.fail("gap: %s after %d", right, last.Seq)
	}
	if e.Claim {
		c.verdict.Claims++
	}
	c.tokens[e.Token], c.processes[e.By] = true, true
	c.verdict.Writes[e.Resource], c.last[e.Resource] = e.Seq, *e
}

// fail records the first violation. Later ones often follow from it.
func (c *Checker) fail(format string, arguments ...any) {
	if c.verdict.OK {
		c.verdict.OK, c.verdict.Violation = false, fmt.Sprintf("line %d: ", c.verdict.Lines)+fmt.Sprintf(format, arguments...)
	}
}
