package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/controllers/streams"
	"github.com/conclave-dev/conclave/internal/operator/groupstatus"
	"github.com/conclave-dev/conclave/internal/operator/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// scene is all that there is to know about a group at one moment.
type scene struct {
	key    types.NamespacedName
	group  *v1.ElectionGroup
	memory *memory
	// found is the status as it was at first.
	found v1.ElectionGroupStatus
	// now is when all that follows had been read: a wait that begins now begins after it.
	now   time.Time
	again deadline

	// pods are by name; what others say about pods that aren't there counts for nothing.
	pods   map[string]*corev1.Pod
	nodes  map[string]*corev1.Node
	lines  map[string]streams.Connection
	voices map[string]streams.AgentReport

	configMap *corev1.ConfigMap
	// document is what the ConfigMap has; nil if it makes no sense, or isn't ours.
	document *control.Document
	service  *corev1.Service
	slice    *discoveryv1.EndpointSlice
	bundle   string
}

// gather looks at everything that concerns a group.
func (o *operator) gather(ctx context.Context, group *v1.ElectionGroup) (*scene, error) {
	key := client.ObjectKeyFromObject(group)
	s := &scene{
		key: key, group: group, found: group.Status, memory: o.memories.recall(key, group.UID), now: time.Now(),
		pods: map[string]*corev1.Pod{}, nodes: map[string]*corev1.Node{},
		lines: map[string]streams.Connection{}, voices: map[string]streams.AgentReport{},
	}
	bundle, err := o.options.CA.Bundle(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the authorities: %w", err)
	}
	s.bundle = string(bundle)
	said := o.streams.Reports(key)
	if err := o.gatherPods(ctx, s, said); err != nil {
		return nil, err
	}
	if err := o.gatherObjects(ctx, s); err != nil {
		return nil, err
	}
	if err := o.gatherUnseen(ctx, s); err != nil {
		return nil, err
	}
	for name, pod := range s.pods {
		// The stream of an earlier pod of the name is none of this one's.
		if line, ok := o.streams.Connection(client.ObjectKeyFromObject(pod)); ok && line.UID == pod.UID {
			s.lines[name] = line
		}
		if voice, ok := said[name]; ok && voice.UID == pod.UID {
			s.voices[name] = voice
		}
	}
	s.now = time.Now()
	return s, nil
}

func (o *operator) gatherPods(ctx context.Context, s *scene, said map[string]streams.AgentReport) error {
	var found corev1.PodList
	err := o.cache.List(ctx, &found, client.InNamespace(s.key.Namespace), client.MatchingFields{podsByGroup: s.key.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list the pods of the group: %w", err)
	}
	for i := range found.Items {
		s.pods[found.Items[i].Name] = &found.Items[i]
	}
	if err := o.gatherMute(ctx, s); err != nil {
		return err
	}
	// The others that matter are known by name.
	others := membersOf(s.group)
	for name := range said {
		others = append(others, name)
	}
	for _, name := range others {
		if s.pods[name] != nil {
			continue
		}
		var pod corev1.Pod
		err := o.cache.Get(ctx, types.NamespacedName{Namespace: s.key.Namespace, Name: name}, &pod, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read a pod: %w", err)
		}
		if err == nil {
			s.pods[name] = &pod
		}
	}
	for _, pod := range s.pods {
		name := pod.Spec.NodeName
		if name == "" || s.nodes[name] != nil {
			continue
		}
		var node corev1.Node
		err := o.cache.Get(ctx, types.NamespacedName{Name: name}, &node, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read a node: %w", err)
		}
		if err == nil {
			s.nodes[name] = &node
		}
	}
	return nil
}

func (o *operator) gatherObjects(ctx context.Context, s *scene) error {
	var err error
	s.configMap, err = find[corev1.ConfigMap](ctx, o, s.key.Namespace, control.ConfigMapName(s.key.Name))
	if err != nil {
		return err
	}
	if s.configMap != nil && !membership.OwnedByOther(s.configMap, s.group) {
		found := &control.Document{}
		// If somebody has spoilt it, it will be written again.
		if yaml.Unmarshal([]byte(s.configMap.Data[control.DocumentKey]), found) == nil {
			s.document = found
		}
	}
	if s.group.Spec.Service == nil {
		return nil
	}
	s.service, err = find[corev1.Service](ctx, o, s.key.Namespace, s.group.Spec.Service.Name)
	if err != nil {
		return err
	}
	s.slice, err = find[discoveryv1.EndpointSlice](ctx, o, s.key.Namespace, membership.EndpointSliceName(s.group))
	return err
}

// find reads an object that is wanted. Of its kind, only those of ours are in the
// cache. If it isn't there, it may be somebody else's; only then the API server is asked.
func find[T any, P interface {
	*T
	client.Object
}](ctx context.Context, o *operator, namespace, name string) (P, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	found := P(new(T))
	err := o.client.Get(ctx, key, found)
	if apierrors.IsNotFound(err) {
		found = P(new(T))
		err = o.live.Get(ctx, key, found)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %T %s: %w", found, name, err)
	}
	return found, nil
}

// plan is what a plan is made from.
func (s *scene) plan() membership.Facts {
	f := membership.Facts{
		Group: s.group, Nodes: s.nodes, Connected: map[types.UID]bool{},
		Versions: map[string]int64{}, Adopted: s.adopted(), Missing: s.missing(),
		CABundle: s.bundle, ConfigMap: s.configMap, Service: s.service, EndpointSlice: s.slice, Now: s.now,
	}
	for name, pod := range s.pods {
		f.Pods = append(f.Pods, pod)
		f.Connected[pod.UID] = s.lines[name].Accepts(s.key.Name)
	}
	for name, voice := range s.voices {
		if voice.Report.UID == string(s.group.UID) {
			// Also if it isn't connected just now: no agent goes back to an older list.
			f.Versions[name] = int64(voice.Report.Version)
		}
		if s.lines[name].Connected && voice.Report.UID != string(s.group.UID) {
			f.InEarlierGroup = append(f.InEarlierGroup, name)
		}
	}
	f.FirstListComplete = s.patient()
	f.Published, f.Revision = s.published()
	return f
}

// adopted are the members of the previous list that have gone by the list in
// force for long enough.
func (s *scene) adopted() map[string]bool {
	list := s.group.Status.MemberList
	if list == nil || list.Previous == nil || list.State != v1.ListAdopting {
		return nil
	}
	adopted := map[string]bool{}
	for _, m := range list.Previous.Members {
		voice, ok := s.voices[m.Pod]
		if !ok || voice.Report.UID != string(s.group.UID) || int64(voice.Report.Version) != list.Version {
			continue
		}
		if s.again.due(voice.Adopted.Add(membership.AdoptionWait(s.group)), s.now) {
			adopted[m.Pod] = true
		}
	}
	return adopted
}

// missing are the members that have had no pod for long enough. The wait begins
// when the list in force has been published: until then, a pod that comes begins
// with the list before, and has a say in that.
func (s *scene) missing() map[string]bool {
	list := s.group.Status.MemberList
	if list == nil || !s.isPublished(list) {
		s.memory.missing = nil
		return nil
	}
	if s.memory.version != list.Version {
		s.memory.version, s.memory.missing = list.Version, nil
	}
	members := list.Members
	if list.Previous != nil {
		members = append(slices.Clip(members), list.Previous.Members...)
	}
	missing, since := map[string]bool{}, map[string]time.Time{}
	for _, m := range members {
		if !s.lacks(m.Pod) {
			continue
		}
		since[m.Pod] = s.now
		if before, ok := s.memory.missing[m.Pod]; ok {
			since[m.Pod] = before
		}
		if s.again.due(since[m.Pod].Add(membership.MissingPodGrace(s.group)), s.now) {
			missing[m.Pod] = true
		}
	}
	s.memory.missing = since
	return missing
}

// lacks reports whether a member has no pod, or one that has finished.
func (s *scene) lacks(name string) bool {
	pod := s.pods[name]
	return pod == nil || membership.Finished(pod)
}

// isPublished reports whether agents have been told a list.
func (s *scene) isPublished(list *v1.MemberList) bool {
	document, _ := s.published()
	return document != nil && int64(document.Group.Version) == list.Version
}

// patient reports whether the first list waits for no more agents.
func (s *scene) patient() bool {
	if s.memory.first.IsZero() {
		for _, line := range s.lines {
			if line.Accepts(s.key.Name) {
				s.memory.first = s.now
			}
		}
	}
	if s.memory.first.IsZero() || s.group.Status.MemberList != nil {
		return false
	}
	return s.again.due(s.memory.first.Add(patience), s.now)
}

// published is what the ConfigMap has of this group, and the highest revision
// that is known: that of an earlier group of the name counts, and what an agent
// has seen of a ConfigMap that is gone.
func (s *scene) published() (document *control.Document, revision int64) {
	newest := control.MaxRevision(s.now)
	revision = s.memory.revision
	for _, voice := range s.voices {
		if voice.Report.Revision <= newest {
			revision = max(revision, voice.Report.Revision)
		}
	}
	found := s.document
	if found != nil && found.Revision > newest {
		found = nil
	}
	if found != nil {
		revision = max(revision, found.Revision)
	}
	s.memory.revision = revision
	if found == nil || found.UID != string(s.group.UID) {
		return nil, revision
	}
	return found, revision
}

// report is what a report is made from.
func (s *scene) report(p *membership.Plan) groupstatus.Facts {
	f := groupstatus.Facts{
		Group: s.group, List: p.List, Problem: p.Problem, StatusBehind: p.StatusBehind,
		ServiceConflict: p.ServiceConflict, ServiceHasSelector: p.ServiceHasSelector, EndpointSliceConflict: p.EndpointSliceConflict,
		PublishError: s.memory.unpublished.text, RoutingError: s.memory.unrouted.text,
		Pods: s.pods, Nodes: s.nodes, Agents: map[string]groupstatus.AgentState{}, Now: s.now,
	}
	for name := range s.pods {
		line := s.lines[name]
		f.Agents[name] = groupstatus.AgentState{
			Connected: line.Connected, NotInGroup: line.Connected && !line.Accepts(s.key.Name), Problem: line.Problem, Report: s.voices[name].Report,
		}
	}
	return f
}
