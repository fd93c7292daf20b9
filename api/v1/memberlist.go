package v1

// MemberList is the newest list of members that agents were given, and all that
// the operator must remember of the lists before: see
// docs/adr/0008-what-the-status-remembers.md. What agents mount is made from
// this and nothing else, so the status is written first, and the ConfigMap can
// be made again at any time.
//
// The rules keep three promises that the agents rely on, whoever writes: a list
// never changes under its version, versions follow each other without a gap,
// and none is given out before the one before it has settled.
//
// +kubebuilder:validation:XValidation:rule="self.version == oldSelf.version || self.version == oldSelf.version + 1",message="version must stay or rise by one: agents adopt lists one after the other",fieldPath=".version"
// +kubebuilder:validation:XValidation:rule="self.version <= oldSelf.version || oldSelf.state == 'Settled'",message="version can't rise before the list in force has settled: three lists would be in force at once",fieldPath=".version"
// +kubebuilder:validation:XValidation:rule="self.version <= oldSelf.version || self.state == 'Adopting'",message="a new list begins as Adopting",fieldPath=".state"
// +kubebuilder:validation:XValidation:rule="self.version != oldSelf.version || self.state == 'Settled' || oldSelf.state == 'Adopting'",message="a list that has settled stays so",fieldPath=".state"
// +kubebuilder:validation:XValidation:rule="self.version != oldSelf.version || self.members == oldSelf.members",message="members can't change under the same version: raise it by one",fieldPath=".members"
// +kubebuilder:validation:XValidation:rule="self.version != oldSelf.version || (has(self.previous) == has(oldSelf.previous) && (!has(self.previous) || self.previous == oldSelf.previous))",message="previous can't change under the same version",fieldPath=".previous"
// +kubebuilder:validation:XValidation:rule="self.version != oldSelf.version + 1 || (has(self.previous) && self.previous.members.map(m, m.pod) == oldSelf.members.map(m, m.pod) && self.previous.members.map(m, m.priority) == oldSelf.members.map(m, m.priority))",message="previous must be the list that was in force before",fieldPath=".previous"
// +kubebuilder:validation:XValidation:rule="self.version != oldSelf.version || (has(self.floor) ? self.floor : 0) == (has(oldSelf.floor) ? oldSelf.floor : 0)",message="floor can't change under the same version",fieldPath=".floor"
// +kubebuilder:validation:XValidation:rule="self.version <= oldSelf.version || !has(self.floor) || !has(oldSelf.floor) || self.floor >= oldSelf.floor",message="floor never goes back",fieldPath=".floor"
// +kubebuilder:validation:XValidation:rule="self.version > 1 || (!has(self.previous) && !has(self.departed) && !has(self.floor) && self.state == 'Settled')",message="version 1 is the first list: it has neither previous, departed nor floor, and is Settled"
// +kubebuilder:validation:XValidation:rule="self.version == 1 || (has(self.previous) && self.previous.version == self.version - 1)",message="previous must be the list of the version before",fieldPath=".previous"
// +kubebuilder:validation:XValidation:rule="self.version == 1 || has(self.floor)",message="floor is needed from version 2 on",fieldPath=".floor"
type MemberList struct {
	// version numbers the lists, from 1.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	Version int64 `json:"version"`

	// state is Adopting until a majority of the previous list has adopted this
	// one; then it is Settled, and the next one may follow. Meanwhile a
	// coordinator needs a majority of both.
	// +required
	State ListState `json:"state"`

	// members are the members in the order of the ring.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	Members []Member `json:"members"`

	// previous is the list before this one. It stays when this one has settled:
	// an agent that was away then has to know it.
	// +optional
	Previous *PreviousList `json:"previous,omitempty"`

	// departed are members of the previous list whose pods no longer exist, for
	// a lease or longer. They count as having adopted this one.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Departed []string `json:"departed,omitempty"`

	// floor is a term that nobody exceeded under any list before the previous
	// one: the reading of the operator's clock when that had settled.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=17592186044415
	Floor *int64 `json:"floor,omitempty"`
}

// ListState says how far a list has come.
//
// +kubebuilder:validation:Enum=Adopting;Settled
type ListState string

// The states.
const (
	// Adopting: the list before is still in force beside this one.
	ListAdopting ListState = "Adopting"
	// Settled: this list alone is in force.
	ListSettled ListState = "Settled"
)

// PreviousList is a list that another one has replaced.
type PreviousList struct {
	// version is its version.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967294
	Version int64 `json:"version"`

	// members are its members in the order of the ring.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	Members []Member `json:"members"`
}
