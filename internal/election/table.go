package election

// ProcessStatus is the status in a row of the process status table.
type ProcessStatus uint8

// The values of a row.
const (
	Unknown ProcessStatus = iota
	Normal
	Coordinating
	Crashed
)

func (s ProcessStatus) String() string {
	return [...]string{"Unknown", "Normal", "Coordinator", "Crashed"}[s&3]
}

// Row is one row of the process status table ([ImprovedBully], section 1).
type Row struct {
	ID       ID
	Priority Priority
	Status   ProcessStatus
}

// StatusTable is the process status table. The coordinator's rank implies most of it, since the coordinator is the
// highest live process: processes that outrank it have crashed, and all others are normal. The table stores only the
// exceptions from that, so that it is small even if there are many processes.
type StatusTable struct {
	roster      *Roster
	coordinator ID
	exceptions  IDs
}

// NewStatusTable returns a table of roster without exceptions. If coordinator is None, all processes are normal.
func NewStatusTable(roster *Roster, coordinator ID) StatusTable {
	return StatusTable{roster: roster, coordinator: coordinator}
}

// Coordinator returns the process that is coordinator in the table, or None.
func (t *StatusTable) Coordinator() ID { return t.coordinator }

// Exceptions returns the rows that differ from what the coordinator's rank implies.
func (t *StatusTable) Exceptions() []ID { return t.exceptions.Clone() }

func (t *StatusTable) impliedCrashed(id ID) bool {
	return t.coordinator != None && t.roster.Outranks(id, t.coordinator)
}

// Crashed reports whether the row of id is CRASHED.
func (t *StatusTable) Crashed(id ID) bool { return t.impliedCrashed(id) != t.exceptions.Has(id) }

// Mark sets the row of id, and reports whether that changed it. The coordinator's own row can be marked as crashed;
// only SetCoordinator makes another process coordinator.
func (t *StatusTable) Mark(id ID, crashed bool) bool {
	if !t.roster.Has(id) || t.Crashed(id) == crashed {
		return false
	}
	if id == t.coordinator {
		t.clearCoordinator()
	}
	if t.impliedCrashed(id) != crashed {
		t.exceptions.Add(id)
	} else {
		t.exceptions.Remove(id)
	}
	return true
}

// SetCoordinator makes id the coordinator: processes that outrank it have crashed.
func (t *StatusTable) SetCoordinator(id ID) {
	var except IDs
	for _, x := range t.crashedBelow(id) {
		except.Add(x)
	}
	t.coordinator, t.exceptions = id, except
}

// crashedBelow returns the crashed processes that id outranks.
func (t *StatusTable) crashedBelow(id ID) []ID {
	var below []ID
	ranked := t.roster.ranked
	from := t.roster.Rank(id) + 1
	if t.coordinator != None {
		// Between id and the present coordinator all processes have crashed, except for the exceptions.
		for i := from; i < min(t.roster.Rank(t.coordinator), len(ranked)); i++ {
			if x := ranked[i].ID; !t.exceptions.Has(x) {
				below = append(below, x)
			}
		}
	}
	for _, x := range t.exceptions {
		if t.roster.Rank(x) >= from && !t.impliedCrashed(x) {
			below = append(below, x)
		}
	}
	return below
}

// clearCoordinator leaves the table without a coordinator, with all other rows unchanged.
func (t *StatusTable) clearCoordinator() {
	var except IDs
	for _, m := range t.roster.ranked {
		if t.Crashed(m.ID) {
			except.Add(m.ID)
		}
	}
	t.coordinator, t.exceptions = None, except
}

// Highest returns the highest-ranked process that hasn't crashed and has a priority above 0, or None.
func (t *StatusTable) Highest() ID {
	for _, m := range t.roster.ranked {
		if m.Priority > 0 && !t.Crashed(m.ID) {
			return m.ID
		}
	}
	return None
}

// Copy sets the table to that of a peer: its coordinator and its exceptions.
// Rows of processes that aren't members are left out.
func (t *StatusTable) Copy(coordinator ID, exceptions []ID) {
	if !t.roster.Has(coordinator) {
		coordinator = None
	}
	t.coordinator, t.exceptions = coordinator, nil
	for _, id := range exceptions {
		if t.roster.Has(id) && id != coordinator {
			t.exceptions.Add(id)
		}
	}
}

// Adopt transfers the rows to another member list.
func (t *StatusTable) Adopt(roster *Roster) {
	var crashed []ID
	for _, m := range roster.ranked {
		if t.Crashed(m.ID) { // A process that this table doesn't have hasn't.
			crashed = append(crashed, m.ID)
		}
	}
	coordinator := t.coordinator
	if !roster.Has(coordinator) {
		coordinator = None
	}
	t.roster, t.coordinator, t.exceptions = roster, coordinator, nil
	for _, m := range roster.ranked {
		t.Mark(m.ID, false)
	}
	for _, id := range crashed {
		t.Mark(id, true)
	}
}

// Rows appends the rows, highest rank first.
func (t *StatusTable) Rows(rows []Row) []Row {
	for _, m := range t.roster.ranked {
		status := Normal
		switch {
		case m.ID == t.coordinator:
			status = Coordinating
		case t.Crashed(m.ID):
			status = Crashed
		}
		rows = append(rows, Row{ID: m.ID, Priority: m.Priority, Status: status})
	}
	return rows
}

// Clone returns an independent copy.
func (t *StatusTable) Clone() StatusTable {
	c := *t
	c.exceptions = t.exceptions.Clone()
	return c
}

// Encode appends the table to b.
func (t *StatusTable) Encode(b []byte) []byte {
	b = AppendNumber(b, uint64(t.coordinator))
	return t.exceptions.Encode(b)
}
