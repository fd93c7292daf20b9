package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/operator/decide/inject"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
)

// The keys that mean something on a pod.
var (
	podLabels      = []string{v1.LabelAgent}
	podAnnotations = append(inject.OptionAnnotations(), v1.AnnotationGroups, v1.AnnotationSelectedBy,
		v1.AnnotationPriority, v1.AnnotationProbe, v1.AnnotationExec, v1.AnnotationStepDownBy)
)

func checkPods(f *Facts) []Finding {
	var all []Finding
	agents := map[string]int{}
	for i := range f.Pods {
		p := &f.Pods[i]
		if membership.Finished(p) { // Nothing can change it.
			continue
		}
		all = append(all, checkPod(f, p)...)
		if image := membership.AgentImage(p); image != "" {
			agents[image]++
		}
	}
	if o := f.operator(); o != nil {
		all = append(all, checkAgentImages(o, agents)...)
	}
	if len(all) == 0 {
		all = append(all, Finding{Level: OK, Object: "pods", Message: fmt.Sprintf(
			"The labels and annotations of %d pods are correct.", len(f.Pods))})
	}
	return all
}

func checkPod(f *Facts, p *corev1.Pod) []Finding {
	object := "pod " + p.Namespace + "/" + p.Name
	all := slices.Concat(
		unknownKeys(object, "label", p.Labels, podLabels),
		unknownKeys(object, "annotation", p.Annotations, podAnnotations),
		unknownGroups(f, object, p),
	)
	value, labeled := p.Labels[v1.LabelAgent]
	switch hasAgent := membership.HasAgent(p); {
	case labeled && value != v1.AgentEnabled && value != v1.AgentDisabled:
		all = append(all, Finding{
			Problem, object, fmt.Sprintf("The label %s is %q, so the pod has not opted in.", v1.LabelAgent, value),
			fmt.Sprintf("Set it to %q in the pod template.", v1.AgentEnabled),
		})
	case value == v1.AgentEnabled && !hasAgent:
		all = append(all, Finding{
			Problem, object, "It has opted in, but has no agent: it was created without the webhook.",
			"Delete the pod, so that it is created again.",
		})
	case !labeled && !hasAgent && p.Annotations[v1.AnnotationGroups] != "":
		all = append(all, Finding{
			Problem, object, fmt.Sprintf("It has the annotation %s, and has not opted in.", v1.AnnotationGroups),
			fmt.Sprintf("Add the label %s: %s to the pod template.", v1.LabelAgent, v1.AgentEnabled),
		})
	}
	if hasAgent := membership.HasAgent(p); hasAgent || value == v1.AgentEnabled {
		for _, err := range inject.CheckAnnotations(p.Annotations) {
			all = append(all, Finding{Problem, object, "The " + err.Error() +
				".", "Correct it in the pod template: the webhook refuses new pods with this value."})
		}
	}
	if g := f.groupOfProgram(p); g != nil && g.Spec.Application.Session != v1.SessionRequired {
		all = append(all, Finding{
			Warning,
			object, fmt.Sprintf("The group %s may elect it before it can run its program (annotation %s), or while it can't.",
				g.Name, v1.AnnotationExec),
			"Set spec.application.session: Required in the ElectionGroup.",
		})
	}
	if proxy := inject.Interception(p); proxy != "" && membership.HasAgent(p) {
		all = append(all, Finding{
			Warning, object, fmt.Sprintf(
				"A proxy intercepts connections with its agent (%s): a crashed process is noticed by its silence only.", proxy),
			"Exclude the ports of the agent: docs/install.md, Service meshes, describes how.",
		})
	}
	return append(all, interceptedClients(f, object, p)...)
}

// interceptedClients finds proxies between the agents that carry connections and the application.
func interceptedClients(f *Facts, object string, p *corev1.Pod) (all []Finding) {
	for i := range f.Groups {
		service := f.Groups[i].Spec.Service
		if service == nil || service.Via != v1.ViaAgents || !membership.TakesPart(&f.Groups[i])(p) {
			continue
		}
		for _, port := range service.Ports {
			target := port.Port
			if port.TargetPort != nil {
				target = port.TargetPort.IntVal // via: Agents has no names
			}
			if proxy := inject.InterceptionOf(p, target); proxy != "" {
				all = append(all, Finding{
					Warning, object, fmt.Sprintf("A proxy (%s) accepts connections to port %d before the application does: after an "+
						"election, agents can't let clients of the group %s wait for it, so some are reset.",
						proxy, target, f.Groups[i].Name),
					fmt.Sprintf("Exclude port %d from the mesh, inbound and outbound (docs/install.md, Service meshes), or let "+
						"clients try again.", target),
				})
			}
		}
	}
	return all
}

// groupOfProgram returns the group whose coordinator runs the program of a pod, or nil.
func (f *Facts) groupOfProgram(p *corev1.Pod) *v1.ElectionGroup {
	name, _, _ := strings.Cut(p.Annotations[v1.AnnotationExec], "/")
	for i := range f.Groups {
		if g := &f.Groups[i]; g.Namespace == p.Namespace && g.Name == name {
			return g
		}
	}
	return nil
}

// unknownKeys finds labels or annotations of Conclave that mean nothing on a pod.
func unknownKeys(object, kind string, have map[string]string, known []string) (all []Finding) {
	for _, key := range slices.Sorted(maps.Keys(have)) {
		domain, _, _ := strings.Cut(key, "/")
		if domain != v1.GroupVersion.Group || slices.Contains(known, key) {
			continue
		}
		all = append(all, Finding{
			Warning, object, fmt.Sprintf("The %s %s means nothing to Conclave%s.", kind, key, command.DidYouMean(key, known)),
			"Correct it in the pod template.",
		})
	}
	return all
}

// unknownGroups finds groups that a pod names and that don't exist, or to which it doesn't belong,
// and groups that it should name.
func unknownGroups(f *Facts, object string, p *corev1.Pod) (all []Finding) {
	if f.Unknown[Groups] != "" {
		return nil
	}
	var existing []string
	member := false
	for i := range f.Groups {
		g := &f.Groups[i]
		if g.Namespace != p.Namespace {
			continue
		}
		existing = append(existing, g.Name)
		names, takesPart := membership.NamesGroup(p, g.Name), membership.TakesPart(g)(p)
		member = member || takesPart
		switch {
		case names && !takesPart:
			all = append(all, Finding{
				Warning, object, fmt.Sprintf("It names the group %s, but isn't a member: spec.members doesn't contain it, and "+
					"spec.selector doesn't match its labels.", g.Name),
				"Add the pod to spec.members of the ElectionGroup, use spec.selector, or correct the annotation " +
					v1.AnnotationGroups + " in the pod template.",
			})
		case takesPart && !names && membership.HasAgent(p) && !membership.BySelection(p):
			all = append(all, Finding{
				Warning, object, fmt.Sprintf(
					"The group %s lists or selects it, but its annotation %s doesn't name the group, so it isn't a member.",
					g.Name, v1.AnnotationGroups),
				"Name the group in the annotation in the pod template. Without the annotation, a pod is in all groups " +
					"that list or select it.",
			})
		}
	}
	if f.OnlyGroup {
		return all
	}
	if !member && membership.HasAgent(p) && p.DeletionTimestamp == nil && v1.GroupsAnnotation(p.Annotations) == "" {
		all = append(all, Finding{
			Warning, object, "It has an agent, but no group lists or selects it: it takes part in no election.",
			"Add the pod to spec.members of an ElectionGroup, or use spec.selector.",
		})
	}
	for name := range v1.GroupNames(p.Annotations[v1.AnnotationGroups]) {
		if name != "" && !slices.Contains(existing, name) {
			all = append(all, Finding{
				Warning, object, fmt.Sprintf("It names the group %s, which doesn't exist in its namespace%s.", name,
					command.DidYouMean(name, existing)),
				"Create the ElectionGroup, or correct the annotation " + v1.AnnotationGroups + " in the pod template.",
			})
		}
	}
	return all
}

// checkAgentImages finds agents that the operator wouldn't inject.
func checkAgentImages(o *Operator, agents map[string]int) []Finding {
	current := o.AgentImage
	if current == "" {
		return nil
	}
	var others []string
	for _, image := range slices.Sorted(maps.Keys(agents)) {
		if image != current {
			others = append(others, fmt.Sprintf("%s (%d)", image, agents[image]))
		}
	}
	if len(others) == 0 {
		return nil
	}
	return []Finding{{
		Warning, "agents", fmt.Sprintf("The operator in namespace %s injects %s. Running pods also have %s.", o.Namespace,
			current, strings.Join(others, ", ")),
		"A pod keeps its agent until it is created again: kubectl rollout restart.",
	}}
}
