package e2e

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// work is what a program has written in one tenure.
type work struct {
	pod         string
	token       uint64
	first, last time.Time
}

var programWork = regexp.MustCompile(`(?m)^(\S+) settle: (?:leads|works) with token (\d+)$`)

// testProgram deletes the pod in which the program of the sample runs.
func testProgram(e env) {
	before := e.awaitProgram(0)
	last := before[len(before)-1]
	deleted := make(chan []work)
	go func() { deleted <- e.workIn(last.pod, "--follow") }()
	e.kubectl("delete", "pod", last.pod, "--namespace", samplesNamespace, "--wait=false")
	all := e.awaitProgram(last.token)
	stopped := <-deleted
	if len(stopped) == 0 {
		e.t.Errorf("got no work in the log of %s", last.pod)
	}
	all = append(slices.DeleteFunc(all, func(w work) bool { return w.pod == last.pod }), stopped...)
	slices.SortFunc(all, byToken)
	for i := 1; i < len(all); i++ {
		if was, is := all[i-1], all[i]; !is.first.After(was.last) {
			e.t.Errorf("got work in %s from %v on, while the program still worked in %s until %v", is.pod, is.first, was.pod, was.last)
		}
	}
	e.kubectl("delete", "--namespace", samplesNamespace, "-f", e.samples()+"/singleton.yaml", "--wait=false")
}

// awaitProgram waits until the program works in the coordinator's pod, with a token above another one. It returns what is in the logs of
// all pods, in the order of tokens.
func (e env) awaitProgram(above uint64) (all []work) {
	e.t.Helper()
	e.waitUntil(defaultTimeout, "the program works in the coordinator's pod", func() bool {
		var pods corev1.PodList
		e.list(samplesNamespace, map[string]string{"app": "settle"}, &pods)
		all = nil
		for i := range pods.Items {
			all = append(all, e.workIn(pods.Items[i].Name)...)
		}
		slices.SortFunc(all, byToken)
		if len(all) == 0 {
			return false
		}
		newest := all[len(all)-1]
		return newest.token > above && newest.last.After(newest.first) && newest.pod == e.group("settle").coordinator()
	})
	return all
}

func byToken(a, b work) int { return cmp.Compare(a.token, b.token) }

func (e env) workIn(pod string, flags ...string) (all []work) {
	e.t.Helper()
	output, err := e.tryKubectl(append([]string{"logs", "--timestamps", "--namespace", samplesNamespace, pod, "-c", "application"}, flags...)...)
	if err != nil {
		return nil // It hasn't started, or is gone.
	}
	for _, line := range programWork.FindAllStringSubmatch(output, -1) {
		at, timeErr := time.Parse(time.RFC3339Nano, line[1])
		token, err := strconv.ParseUint(line[2], 10, 64)
		if timeErr != nil || err != nil {
			e.t.Errorf("%s has logged %q: %v, %v", pod, line[0], timeErr, err)
		}
		if n := len(all); n == 0 || all[n-1].token != token {
			all = append(all, work{pod, token, at, at})
		}
		all[len(all)-1].last = at
	}
	return all
}
