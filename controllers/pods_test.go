package controllers_test

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/fakeagent"
)

// pod makes a running pod with an agent that does as it is told.
func (s *stage) pod(name string, groups ...string) *fakeagent.Agent {
	s.t.Helper()
	return s.podLike(name, groups, func(*corev1.Pod) {})
}

func (s *stage) podLike(name string, groups []string, change func(*corev1.Pod)) *fakeagent.Agent {
	s.t.Helper()
	pod := s.barePod(name, func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{v1.AnnotationGroups: strings.Join(groups, ",")}
		pod.Spec.InitContainers = []corev1.Container{{
			Name: v1.AgentContainer, Image: "agent", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		}}
		change(pod)
	})
	agent, err := fakeagent.New(fakeagent.Identity{
		Namespace: s.namespace, Pod: name, Groups: groups,
		Address: net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(control.OperatorPort)), Network: &s.network,
	}, s.wardrobe)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := agent.Run(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = agent.Stop() })
	s.mu.Lock()
	s.agents[name] = agent
	s.mu.Unlock()
	return agent
}

// barePod makes a running pod without an agent.
func (s *stage) barePod(name string, change func(*corev1.Pod)) *corev1.Pod {
	s.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	change(pod)
	if err := s.client.Create(s.t.Context(), pod); err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	s.ips++
	ip := fmt.Sprintf("10.1.%d.%d", s.ips/250, s.ips%250+1)
	if strings.HasSuffix(name, "-six") {
		ip = fmt.Sprintf("fd00::%x", s.ips)
	}
	s.mu.Unlock()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.PodIP = ip
	pod.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	if err := s.client.Status().Update(s.t.Context(), pod); err != nil {
		s.t.Fatal(err)
	}
	return pod
}

// deletePod deletes a pod at once, with its agent.
func (s *stage) deletePod(name string) {
	s.t.Helper()
	s.mu.Lock()
	agent := s.agents[name]
	delete(s.agents, name)
	s.mu.Unlock()
	if agent != nil {
		if err := agent.Stop(); err != nil {
			s.t.Fatal(err)
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	if err := s.client.Delete(s.t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		s.t.Fatal(err)
	}
}

// elect has all agents of a group that are there say that one leads, and that
// those that aren't there have crashed.
func (s *stage) elect(group, coordinator string, term uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	decree := fakeagent.Leadership{Coordinator: coordinator, Term: term, ElectedAt: time.Now(), Crashed: map[string]bool{}}
	for _, agent := range s.agents {
		report, in := agent.Report(group)
		if !in {
			continue
		}
		for _, row := range report.Processes {
			decree.Crashed[row.Name] = s.agents[row.Name] == nil
		}
		if err := agent.SetLeadership(group, decree); err != nil {
			s.t.Error(err)
		}
	}
}

// awaitAdopted waits until agents go by a version of the list, this group's.
func (s *stage) awaitAdopted(group string, version uint32, pods ...string) {
	s.t.Helper()
	uid := string(s.group(group).UID)
	for _, pod := range pods {
		s.await(fmt.Sprintf("%s has adopted version %d of %s", pod, version, group), func() bool {
			s.mu.Lock()
			agent := s.agents[pod]
			s.mu.Unlock()
			report, ok := agent.Report(group)
			return ok && report.UID == uid && report.Version >= version
		})
	}
}

func (s *stage) role(pod, group string) string {
	s.t.Helper()
	found := &corev1.Pod{}
	if err := s.client.Get(s.t.Context(), s.key(pod), found); err != nil {
		s.t.Fatal(err)
	}
	return found.Labels[v1.RoleLabel(group)]
}

func (s *stage) awaitRole(pod, group, role string) {
	s.t.Helper()
	s.await(fmt.Sprintf("%s has the role %q in %s", pod, role, group), func() bool { return s.role(pod, group) == role })
}
