package control

import (
	"bytes"
	"fmt"
	"time"
)

// The limits of a report. They bound the memory that it takes, and what of it becomes part of
// a status.
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

// CheckElements returns an error if the JSON of a report has so many elements that it takes far more memory than text: a row takes 3
// bytes in JSON, and a hundred in memory. It reads the text only, and counts those in strings, too.
func CheckElements(json []byte) error {
	const maxObjects, maxElements = maxRows + 16, 16 * maxRows // a row has seven fields
	if objects, elements := bytes.Count(json, []byte("{")), bytes.Count(json, []byte(",")); objects > maxObjects || elements > maxElements {
		return fmt.Errorf("report must have at most %d objects and %d elements, got %d and %d", maxObjects, maxElements, objects, elements)
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
	texts := []string{r.UID, r.Digest, r.Coordinator}
	times := []time.Time{r.ElectedAt, r.ChangedAt, r.IneligibleSince}
	if e := r.Ended; e != nil {
		texts, times = append(texts, e.Coordinator, string(e.Cause)), append(times, e.At)
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
