package fakeagent

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// Leadership is the state of a group's election. An empty Coordinator means none.
type Leadership struct {
	Coordinator string
	Term        uint64
	ElectedAt   time.Time
	Electing    bool
	// Crashed are the members that the agent reports as crashed.
	Crashed map[string]bool
}

// SetLeadership sets the state of a group's election and reports it.
func (a *Agent) SetLeadership(group string, d Leadership) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.groups[group]; p == nil || p.left {
		return errNotMember
	}
	a.change(group, func(r *control.Report) {
		r.Coordinator, r.Term, r.ElectedAt, r.Electing, r.ChangedAt = d.Coordinator, d.Term,
			d.ElectedAt, d.Electing, time.Now()
		// Readers of the previous report must not see it change.
		r.Processes = slices.Clone(r.Processes)
		for i := range r.Processes {
			row := &r.Processes[i]
			row.Connected = !d.Crashed[row.Name]
			switch {
			case !row.Connected:
				row.Status = "Crashed"
			case row.Name == d.Coordinator:
				row.Status = "Coordinator"
			default:
				row.Status = "Normal"
			}
		}
	})
	return nil
}

// handle obeys a command.
func (a *Agent) handle(call Call) error {
	path, query, _ := strings.Cut(strings.TrimPrefix(call.Path, control.GroupsPath), "?")
	group, rest, _ := strings.Cut(path, "/")
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.groups[group]
	member := p != nil && !p.left
	switch {
	case call.Method == http.MethodPut && rest == "":
		return a.adopt(group, []byte(call.Body))
	case !member:
		return errNotMember
	case call.Method == http.MethodPut && "/"+rest == control.EligibilityPath:
		return a.setEligible(group, []byte(call.Body))
	case call.Method == http.MethodDelete && rest == "":
		values, err := url.ParseQuery(query)
		if err == nil && values.Get("uid") != p.report.UID {
			err = fmt.Errorf("the agent's group has UID %q", p.report.UID)
		}
		if err == nil {
			p.left = true
			a.changed(p)
		}
		return err
	default:
		return fmt.Errorf("%s %s: unknown command", call.Method, call.Path)
	}
}

func (a *Agent) setEligible(group string, body []byte) error {
	var request struct{ Eligible bool }
	if err := yaml.UnmarshalStrict(body, &request); err != nil {
		return err
	}
	a.change(group, func(r *control.Report) {
		r.Eligible, r.Excluded, r.ChangedAt = request.Eligible, !request.Eligible, time.Now()
	})
	return nil
}

// adopt applies a document if it is newer than the present one.
func (a *Agent) adopt(group string, body []byte) error {
	var d control.Document
	if err := yaml.UnmarshalStrict(body, &d); err != nil {
		return err
	}
	if d.Group.Name != group {
		return fmt.Errorf("the document is about the group %q", d.Group.Name)
	}
	p := a.groups[group]
	if p != nil && d.Revision <= p.report.Revision {
		return nil
	}
	a.change(group, func(r *control.Report) {
		if r.UID != d.UID {
			*r = control.Report{Group: r.Group, Pod: r.Pod, Eligible: true}
		}
		r.UID, r.Generation, r.Revision = d.UID, d.Generation, d.Revision
		r.Version, r.Digest, r.ChangedAt = d.Group.Version, strconv.FormatUint(d.Group.Digest(), 16), time.Now()
		known := map[string]control.Row{}
		for _, row := range r.Processes {
			known[row.Name] = row
		}
		r.Processes = nil
		for _, m := range d.Group.Members {
			row, ok := known[m.Name]
			if !ok {
				row = control.Row{Name: m.Name, Status: "Normal", Connected: true}
			}
			row.Priority = m.Priority
			r.Processes = append(r.Processes, row)
		}
		slices.SortStableFunc(r.Processes, func(x, y control.Row) int { return cmp.Compare(y.Priority, x.Priority) })
	})
	return nil
}
