package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/agents"
	"github.com/conclave-dev/conclave/internal/operator/decide/groupstatus"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// pushDocument sends the document to the agents that report an older one.
//
// An agent without a document of the group would begin with this one. If the cache is behind, that
// has an old list. So unless this reconcile has written the status, such agents get it only if
// the API server has the same version of the group. The others know a list that isn't newer.
func (r *Reconciler) pushDocument(ctx context.Context, s *snapshot, p *membership.Plan, written bool) error {
	command := agents.PushDocument(s.key.Name, p.Document.UID, p.Document.Revision, p.Encoded)
	var first []string
	for _, pod := range s.podsWithOlderDocument(p.Document) {
		if report := s.reports[pod].Report; !written && (report == nil || report.UID != p.Document.UID) {
			if !r.agents.Sent(client.ObjectKeyFromObject(s.pods[pod]), command) {
				first = append(first, pod)
			}
			continue
		}
		r.send(s, pod, command)
	}
	if len(first) == 0 {
		return nil
	}
	now := &v1.ElectionGroup{}
	if err := r.live.Get(ctx, s.key, now); err != nil {
		return fmt.Errorf("read the group: %w", err)
	}
	if now.ResourceVersion != s.group.ResourceVersion {
		return apierrors.NewConflict(v1.GroupVersion.WithResource("electiongroups").GroupResource(), s.key.Name,
			errors.New("the cache is behind"))
	}
	for _, pod := range first {
		r.send(s, pod, command)
	}
	return nil
}

// podsWithOlderDocument returns the pods whose agents need the document. A pod that the
// list has removed needs it only until the list has settled. After that, the agent gets
// the command to leave, and a document would make it join the group again.
func (s *snapshot) podsWithOlderDocument(document *control.Document) []string {
	list := s.group.Status.Protocol.MemberList
	members := list.Members
	if list.State == v1.ListAdopting && list.Previous != nil {
		members = append(slices.Clip(members), list.Previous.Members...)
	}
	var pods []string
	for _, m := range members {
		pod := s.pods[m.Pod]
		if pod == nil || !s.connections[m.Pod].Accepts(s.key.Name) || !membership.NamesGroup(pod, s.key.Name) {
			continue
		}
		report := s.reports[m.Pod].Report
		if report == nil || report.UID != document.UID || report.Revision < document.Revision {
			pods = append(pods, m.Pod)
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}

// sendCommands sends the agents what the evaluation requires: who is eligible, and who
// has to leave.
func (r *Reconciler) sendCommands(s *snapshot, p *membership.Plan, result *groupstatus.Result) {
	for pod, eligible := range result.Eligibility {
		r.send(s, pod, agents.SetEligible(s.key.Name, eligible))
	}
	for _, pod := range result.Leave {
		report, ok := s.reports[pod]
		if !ok || p.Document != nil && s.isMember(pod) && report.Report.UID != string(s.group.UID) {
			// A member that is still in an earlier group of the name leaves that one when it
			// gets the document of this one.
			continue
		}
		// A document that is published later than this decision prevails over it.
		revision := report.Report.Revision
		if document, _ := s.published(); document != nil {
			revision = max(revision, document.Revision)
		}
		r.send(s, pod, agents.LeaveGroup(s.key.Name, report.Report.UID, revision))
	}
}

func (s *snapshot) isMember(pod string) bool {
	list := s.group.Status.Protocol.MemberList
	return list != nil && slices.ContainsFunc(list.Members, func(m v1.Member) bool { return m.Pod == pod })
}

func (r *Reconciler) send(s *snapshot, pod string, command agents.Command) {
	if found := s.pods[pod]; found != nil {
		r.agents.Send(client.ObjectKeyFromObject(found), command)
	}
}
