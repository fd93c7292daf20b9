package plan

import v1 "github.com/conclave-dev/conclave/api/v1"

// list is the member list that should be in the status.
func list(f *Facts) (*v1.MemberList, *Problem) {
	current := f.Group.Status.MemberList
	if current == nil && len(f.Group.Spec.Members) > 0 {
		return &v1.MemberList{Version: 1, State: v1.ListSettled, Members: f.Group.Spec.Members}, nil
	}
	return current, nil
}
