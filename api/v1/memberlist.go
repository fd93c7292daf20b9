package v1

// MemberList is the newest member list that the operator has published, and all that
// it must store about earlier lists: see docs/adr/0008-what-the-status-remembers.md.
// The operator writes the status first and derives the document of the agents from it, so
// it can send the document again at any time.
//
// The rules enforce what the agents depend on, regardless of the writer: a list does
// not change under its version, except that a member gets its identity once, and a list is not
// published before the one before it has settled.
//
// +kubebuilder:validation:XValidation:rule="self.version >= oldSelf.version",message="version cannot decrease: agents use the newest list",fieldPath=".version"
// +kubebuilder:validation:XValidation:rule="self.version <= oldSelf.version || oldSelf.state == 'Settled'",message="version cannot increase before the current list has settled: three lists would be in force at once",fieldPath=".version"
// +kubebuilder:validation:XValidation:rule="self.version <= oldSelf.version || self.state == 'Adopting'",message="state of a new list must be Adopting",fieldPath=".state"
// +kubebuilder:validation:XValidation:rule="self.version != oldSelf.version || self.state == 'Settled' || oldSelf.state == 'Adopting'",message="state cannot change from Settled to Adopting under the same version",fieldPath=".state"
// +kubebuilder:validation:XValidation:rule="self.version != oldSelf.version || self.members == oldSelf.members",message="members cannot change under the same version: increase version",fieldPath=".members"
// +kubebuilder:validation:XValidation:rule="self.version != oldSelf.version || (has(self.previous) == has(oldSelf.previous) && (!has(self.previous) || self.previous == oldSelf.previous))",message="previous cannot change under the same version",fieldPath=".previous"
// +kubebuilder:validation:XValidation:rule="self.version != oldSelf.version || self.leaseMillis == oldSelf.leaseMillis",message="leaseMillis cannot change under the same version: increase version",fieldPath=".leaseMillis"
// +kubebuilder:validation:XValidation:rule="self.version != oldSelf.version || !has(oldSelf.identities) || (has(self.identities) && oldSelf.identities.all(pod, pod in self.identities && self.identities[pod] == oldSelf.identities[pod]))",message="the identity of a member cannot change under the same version: increase version",fieldPath=".identities"
// +kubebuilder:validation:XValidation:rule="self.version <= oldSelf.version || (has(self.previous) && self.previous.version == oldSelf.version && self.previous.members.map(m, m.pod) == oldSelf.members.map(m, m.pod) && self.previous.members.map(m, m.priority) == oldSelf.members.map(m, m.priority) && has(self.previous.identities) == has(oldSelf.identities) && (!has(self.previous.identities) || self.previous.identities == oldSelf.identities))",message="previous must be the list that was in force before this one",fieldPath=".previous"
// +kubebuilder:validation:XValidation:rule="has(self.previous) || (!has(self.departed) && self.state == 'Settled')",message="a list without previous is the first one: departed must be unset, and state must be Settled"
// +kubebuilder:validation:XValidation:rule="!has(self.previous) || self.previous.version < self.version",message="version must be above that of previous",fieldPath=".version"
type MemberList struct {
	// version is the number of the list. It exceeds those of all earlier lists, also of earlier groups
	// of the same name, so it is usually the number of seconds since the beginning of 2026. Each term
	// is the version of a list and a counter.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1073741823
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

	// identities has those of the state directories of members, by pod. A member without one doesn't
	// vote yet: its agent hasn't reported any. One with another state directory, because its pod was
	// replaced, votes under the next list.
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	Identities map[string]Identity `json:"identities,omitempty"`

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
	// In Strict mode, the pod is known to have stopped: see spec.safety.mode. In each mode, it
	// has ended when its pod has an agent with another identity.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Departed []string `json:"departed,omitempty"`
}

// Identity is a random number that an agent stores in its state directory: 16 hexadecimal digits.
//
// +kubebuilder:validation:MaxLength=16
// +kubebuilder:validation:Pattern=`^[0-9a-f]{16}$`
type Identity string

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

// PreviousList is the list that a member list replaces.
type PreviousList struct {
	// version is the number of the list.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1073741823
	Version int64 `json:"version"`

	// members lists the members in the order of the ring.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Members []Member `json:"members"`

	// identities has those of the state directories of members, by pod.
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	Identities map[string]Identity `json:"identities,omitempty"`

	// leaseMillis is the longest lease of the members that have not adopted a newer list.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=600000
	LeaseMillis int32 `json:"leaseMillis"`
}
