package v1

// MemberList is the newest member list that the operator has published, and all that
// it must store about earlier lists: see docs/adr/0008-what-the-status-remembers.md.
// The operator writes the status first and derives the document of the agents from it, so
// it can send the document again at any time.
//
// The rules enforce what the agents depend on, regardless of the writer: a list does
// not change under its version, versions have no gaps, and a list is not published
// before the one before it has settled.
//
// +kubebuilder:validation:XValidation:rule="self.version == oldSelf.version || self.version == oldSelf.version + 1",message="version must stay the same or increase by one: agents adopt lists one after the other",fieldPath=".version"
// +kubebuilder:validation:XValidation:rule="self.version <= oldSelf.version || oldSelf.state == 'Settled'",message="version cannot increase before the current list has settled: three lists would be in force at once",fieldPath=".version"
// +kubebuilder:validation:XValidation:rule="self.version <= oldSelf.version || self.state == 'Adopting'",message="state of a new list must be Adopting",fieldPath=".state"
// +kubebuilder:validation:XValidation:rule="self.version != oldSelf.version || self.state == 'Settled' || oldSelf.state == 'Adopting'",message="state cannot change from Settled to Adopting under the same version",fieldPath=".state"
// +kubebuilder:validation:XValidation:rule="self.version != oldSelf.version || self.members == oldSelf.members",message="members cannot change under the same version: increase version by one",fieldPath=".members"
// +kubebuilder:validation:XValidation:rule="self.version != oldSelf.version || (has(self.previous) == has(oldSelf.previous) && (!has(self.previous) || self.previous == oldSelf.previous))",message="previous cannot change under the same version",fieldPath=".previous"
// +kubebuilder:validation:XValidation:rule="self.version != oldSelf.version || self.leaseMillis == oldSelf.leaseMillis",message="leaseMillis cannot change under the same version: increase version by one",fieldPath=".leaseMillis"
// +kubebuilder:validation:XValidation:rule="self.version != oldSelf.version + 1 || (has(self.previous) && self.previous.members.map(m, m.pod) == oldSelf.members.map(m, m.pod) && self.previous.members.map(m, m.priority) == oldSelf.members.map(m, m.priority))",message="previous must be the list that was in force before this one",fieldPath=".previous"
// +kubebuilder:validation:XValidation:rule="self.version != oldSelf.version || self.state != oldSelf.state || (has(self.departed) ? self.departed.size() : 0) != (has(oldSelf.departed) ? oldSelf.departed.size() : 0) || (has(self.floor) ? self.floor : 0) == (has(oldSelf.floor) ? oldSelf.floor : 0)",message="floor can increase under the same version only when members depart or the list settles",fieldPath=".floor"
// +kubebuilder:validation:XValidation:rule="self.version < oldSelf.version || !has(oldSelf.floor) || (has(self.floor) && self.floor >= oldSelf.floor)",message="floor must not decrease",fieldPath=".floor"
// +kubebuilder:validation:XValidation:rule="self.version > 1 || (!has(self.previous) && !has(self.departed) && !has(self.floor) && self.state == 'Settled')",message="version 1 is the first list: previous, departed and floor must be unset, and state must be Settled"
// +kubebuilder:validation:XValidation:rule="self.version == 1 || has(self.previous)",message="previous is required from version 2 on",fieldPath=".previous"
// +kubebuilder:validation:XValidation:rule="self.version == 1 || has(self.floor)",message="floor is required from version 2 on",fieldPath=".floor"
type MemberList struct {
	// version is the number of the list. The first list has version 1.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	Version int64 `json:"version"`

	// state is Adopting until a majority of the previous list has adopted this one,
	// and Settled afterwards. While it is Adopting, a coordinator needs a majority
	// of both lists. The next list can be published when this one has settled.
	// +required
	State ListState `json:"state"`

	// members lists the members in the order of the ring.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Members []Member `json:"members"`

	// previous is the list before this one. It remains after this one has settled,
	// for agents that were disconnected at that time.
	// +optional
	Previous *PreviousList `json:"previous,omitempty"`

	// leaseMillis is the longest lease of the members that have adopted this list.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=600000
	LeaseMillis int32 `json:"leaseMillis"`

	// departed lists members of the previous list that ended at least one lease ago.
	// They count as having adopted this list. In Available and Majority mode, a member
	// has ended when the API server has no pod of its name, or one that has finished.
	// In Strict mode, the pod is known to have stopped: see spec.safety.mode.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Departed []string `json:"departed,omitempty"`

	// floor is a term that no process exceeded under any list before the previous
	// one, and that no departed member granted. It is a reading of the operator's
	// clock when the list began, members departed, or the list settled, plus 30 seconds,
	// because the clocks of members may be ahead.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=17592186044415
	Floor *int64 `json:"floor,omitempty"`
}

// ListState is the state of a member list.
//
// +kubebuilder:validation:Enum=Adopting;Settled
type ListState string

// The states.
const (
	// Adopting: the previous list is still in force, too.
	ListAdopting ListState = "Adopting"
	// Settled: only this list is in force.
	ListSettled ListState = "Settled"
)

// PreviousList is the list that a member list replaces. It has the version before.
type PreviousList struct {
	// members lists the members in the order of the ring.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Members []Member `json:"members"`

	// leaseMillis is the longest lease of the members that have not adopted a newer list.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=600000
	LeaseMillis int32 `json:"leaseMillis"`
}
