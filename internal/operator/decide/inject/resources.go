package inject

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// resources are those that an agent requests. They also determine the quality of service of a pod.
var resources = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// guaranteedLimits are the limits of an agent without others in a pod whose quality of service is Guaranteed, where
// each container must have limits. With less CPU, heartbeats are late: docs/performance.md has the measurements.
var guaranteedLimits = map[corev1.ResourceName]resource.Quantity{
	corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
}

// layers are options in the order of their precedence, lowest first: those of the operator, and those of the pod.
type layers []Options

// value returns the value of an option, and the layer that has set it, or -1.
func (l layers) value(name string) (value string, layer int) {
	for i, options := range slices.Backward(l) {
		if value, ok := options[name]; ok {
			return value, i
		}
	}
	for i := range allOptions {
		if allOptions[i].name == name {
			return allOptions[i].preset, -1
		}
	}
	return "", -1
}

// amount is how much of a resource a container requests, and its limit, or nil.
type amount struct{ request, limit *resource.Quantity }

// amount returns what the layers say about a resource. If a request is above a limit that a lower layer has set, the
// limit rises, and vice versa. The error calls the options by their names with a prefix.
func (l layers) amount(name, prefix string) (amount, error) {
	request, requested := l.value(name + suffixRequest)
	limit, limited := l.value(name + suffixLimit)
	a := amount{request: new(resource.MustParse(request))}
	if limit == noLimit {
		return a, nil
	}
	a.limit = new(resource.MustParse(limit))
	switch {
	case a.request.Cmp(*a.limit) <= 0:
	case requested > limited:
		a.limit = a.request
	case requested < limited:
		a.request = a.limit
	default:
		return amount{}, fmt.Errorf("%s%s must be at most %s%s, got %s and %s", prefix, name+suffixRequest, prefix,
			name+suffixLimit, request, limit)
	}
	return a, nil
}

// requirements returns the resources of the agent. In a pod whose quality of service is
// otherwise Guaranteed, each request is the limit, so that it remains so.
func (l layers) requirements(guaranteed bool, prefix string) (corev1.ResourceRequirements, error) {
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, name := range resources {
		a, err := l.amount(string(name), prefix)
		if err != nil {
			return r, err
		}
		if guaranteed {
			a = a.guaranteed(guaranteedLimits[name])
		}
		r.Requests[name] = *a.request
		if a.limit != nil {
			r.Limits[name] = *a.limit
		}
	}
	return r, nil
}

// guaranteed returns the amount with a request that is equal to the limit.
func (a amount) guaranteed(limit resource.Quantity) amount {
	switch {
	case a.limit != nil:
		return amount{a.limit, a.limit}
	case a.request.Cmp(limit) > 0:
		return amount{a.request, a.request}
	}
	return amount{&limit, &limit}
}

// The agent writes only its log, of which the kubelet keeps 50 MiB by default, and a few KiB of state.
var ephemeralStorage = amount{new(resource.MustParse("16Mi")), new(resource.MustParse("100Mi"))}

// addEphemeralStorage adds what a quota for ephemeral storage requires of each container, if all
// others have it. Otherwise, a limit of the agent alone would be that of the whole pod: the kubelet
// evicts a pod that uses more than the sum of its containers' limits, whichever of them have one.
func (p *podSpec) addEphemeralStorage(r *corev1.ResourceRequirements) {
	const name = corev1.ResourceEphemeralStorage
	requested, limited := true, true
	for _, c := range p.containers() {
		_, hasRequest := c.Resources.Requests[name]
		_, hasLimit := c.Resources.Limits[name]
		requested, limited = requested && (hasRequest || hasLimit), limited && hasLimit // By default, a request is the limit.
	}
	if requested {
		r.Requests[name] = *ephemeralStorage.request
	}
	if limited {
		r.Limits[name] = *ephemeralStorage.limit
	}
}

// guaranteed reports whether the quality of service of the pod is Guaranteed because of its containers. Resources of
// the pod as a whole take precedence over those of containers, and aren't affected by the agent.
func (p *podSpec) guaranteed() bool {
	if r := p.Spec.Resources; r != nil && len(r.Limits)+len(r.Requests) > 0 {
		return false
	}
	for _, c := range p.containers() {
		for _, name := range resources {
			limit, limited := c.Resources.Limits[name]
			request, requested := c.Resources.Requests[name]
			if !limited || limit.IsZero() || requested && request.Cmp(limit) != 0 { // By default, a request is the limit.
				return false
			}
		}
	}
	return true
}
