package control

import (
	"fmt"
	"time"
)

// The limits of a report. They bound the memory that it takes, and what of it becomes part of
// a status.
const (
	// maxRows is the number of members that a group can have.
	maxRows = 1000
	// maxText is the length of the longest name.
	maxText = 253
	// maxYear is that of the latest time that the API server accepts.
	maxYear = 9999
)

// Check returns what is wrong with a report. The agent may be hostile.
func (r *Report) Check() error {
	if rows := len(r.Processes); rows > maxRows {
		return fmt.Errorf("report must have at most %d rows, got %d", maxRows, rows)
	}
	texts := []string{r.UID, r.Digest, r.Coordinator}
	times := []time.Time{r.ElectedAt, r.ChangedAt}
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
		if year := at.UTC().Year(); year > maxYear {
			return fmt.Errorf("each time of a report must be before the year %d, got %d", maxYear+1, year)
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
