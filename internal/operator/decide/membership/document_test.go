package membership

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election/catalog"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/expect"
)

// TestAgentsAcceptDocuments tests that agents accept all settings that the schema accepts.
func TestAgentsAcceptDocuments(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		f := randomFacts(rng)
		p := f.plan()
		text := p.Encoded
		g, err := config.ParseDocument("the operator", text)
		if err != nil {
			t.Fatalf("%s\n%s", err, text)
		}
		if g.Name != f.Group.Name || int64(g.List.Version) != p.List.Version || len(g.List.Members) != len(p.List.Members) ||
			g.Safety.Lease != time.Duration(p.List.LeaseMillis)*time.Millisecond ||
			len(g.List.Departed) != len(listOf(p.List).NotNeeded()) {
			t.Fatalf("got group %+v of\n%s", g, text)
		}
		if was := p.List.Previous; was != nil && int64(g.List.Previous.Version) != was.Version {
			t.Fatalf("got previous list %+v of\n%s", g.List.Previous, text)
		}
	}
}

// randomFacts returns the facts of a group that the schema accepts, after a few changes.
func randomFacts(rng *rand.Rand) *planner {
	f := newDeclaredFacts("")
	f.Now = f.Now.AddDate(1, 0, 0)
	spec := &f.Group.Spec
	heartbeat := int32(1 + rng.IntN(1000))
	spec.Algorithm = v1.Algorithm(catalog.Names()[rng.IntN(6)])
	spec.Safety = v1.Safety{
		Mode:        []v1.SafetyMode{v1.Available, v1.Majority, v1.Strict}[rng.IntN(3)],
		LeaseMillis: 2*heartbeat + 1 + int32(rng.IntN(1000)),
	}
	spec.Preemption = v1.Preemption{
		Policy:       []v1.PreemptionPolicy{v1.PreemptAlways, v1.PreemptWhenStable, v1.PreemptNever}[rng.IntN(3)],
		StableMillis: new(int32(rng.IntN(100_000))),
	}
	spec.Timing = v1.Timing{HeartbeatMillis: heartbeat, DrainMillis: new(int32(rng.IntN(100)))}
	if rng.IntN(2) == 0 {
		spec.Timing.SuspicionTimeoutMillis = new(heartbeat + 1 + int32(rng.IntN(1000)))
		spec.Timing.StaggerMillis = new(int32(rng.IntN(1000)))
		spec.Timing.ReplyMillis = new(1 + int32(rng.IntN(int(heartbeat))))
	}
	spec.Application.Session = []v1.SessionPolicy{v1.SessionOptional, v1.SessionRequired}[rng.IntN(2)]
	for range 1 + rng.IntN(3) {
		spec.Members = nil
		for i := range 8 {
			if rng.IntN(2) == 0 {
				spec.Members = append(spec.Members,
					v1.Member{Pod: fmt.Sprintf("0%d.e-3", i), Priority: int32(i + 1 + 8*rng.IntN(9))})
			}
		}
		rng.Shuffle(len(spec.Members), func(i, j int) { spec.Members[i], spec.Members[j] = spec.Members[j], spec.Members[i] })
		for i := range spec.Members {
			if rng.IntN(4) == 0 {
				spec.Members[i].Priority = 0
			}
		}
		spec.Members = append(spec.Members, v1.Member{Pod: "yes", Priority: v1.MaxPriority})
		f.Now = f.Now.Add(time.Duration(rng.IntN(1000)) * time.Second)
		f.settle()
		if rng.IntN(2) == 0 {
			f.Missing["yes"] = true
		}
	}
	for i := range 8 {
		if rng.IntN(3) > 0 {
			pod := f.addPod(fmt.Sprintf("0%d.e-3", i))
			pod.UID = types.UID(fmt.Sprint("uid-", i))
			ips := []string{"", "10.0.0.1", "fd00::1", pod.Status.PodIP, fmt.Sprintf("fd00::1:%d", i)}
			pod.Status.PodIP = ips[rng.IntN(len(ips))]
		}
	}
	if rng.IntN(3) == 0 { // The lease of the spec has just changed.
		f.Group.Status.Protocol.MemberList.LeaseMillis = 3 + int32(rng.IntN(3000))
	}
	return f
}

// TestEmptyFieldsAreOmitted: a field that is added must not change the documents of groups that don't use it. Else all
// groups of a cluster get a new revision when the operator is upgraded. That does no harm if it is worth it: see
// docs/adr/0041-documents-without-configmaps.md.
func TestEmptyFieldsAreOmitted(t *testing.T) {
	empty := `{"uid":"","generation":0,"revision":0,"group":{"name":"","algorithm":"","safety":{"mode":"","leaseMillis":0},` +
		`"preemption":{"policy":""},"timing":{"heartbeatMillis":0},"application":{"session":""},"version":0,"members":null}}`
	p := Plan{Document: &control.Document{}}
	p.encode()
	expect.Equalf(t, string(p.Encoded), empty, "an empty document")
}

func TestAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a, b *corev1.Pod)
		a, b   string
	}{
		"different addresses":        {func(_, _ *corev1.Pod) {}, "10.0.0.1:7373", "10.0.0.2:7373"},
		"one pod has no address yet": {func(a, _ *corev1.Pod) { a.Status.PodIP = "" }, "", "10.0.0.2:7373"},
		"one address is invalid":     {func(a, _ *corev1.Pod) { a.Status.PodIP = "invalid" }, "", "10.0.0.2:7373"},
		"IPv6": {
			func(a, _ *corev1.Pod) { a.Status.PodIP = "fd00::7" }, "[fd00::7]:7373", "10.0.0.2:7373",
		},
		"the older pod has finished": {
			func(a, b *corev1.Pod) { a.Status.Phase = corev1.PodSucceeded; b.Status.PodIP = a.Status.PodIP },
			"", "10.0.0.1:7373",
		},
		"the younger pod has finished": {
			func(a, b *corev1.Pod) { b.Status.Phase = corev1.PodFailed; b.Status.PodIP = a.Status.PodIP },
			"10.0.0.1:7373", "",
		},
		"one pod is being deleted": {func(a, b *corev1.Pod) {
			b.DeletionTimestamp = new(metav1.NewTime(noon))
			b.Status.PodIP = a.Status.PodIP
		}, "10.0.0.1:7373", ""},
		"both pods are on the network of the same host": {
			func(a, b *corev1.Pod) { b.Status.PodIP = a.Status.PodIP }, "", "10.0.0.1:7373",
		},
		"both pods are being deleted": {func(a, b *corev1.Pod) {
			a.DeletionTimestamp, b.DeletionTimestamp = new(metav1.NewTime(noon)), new(metav1.NewTime(noon))
			b.Status.PodIP = a.Status.PodIP
		}, "", "10.0.0.1:7373"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newDeclaredFacts("a 1, b 2").addPods("a", "b")
			c.change(f.findPod("a"), f.findPod("b"))
			for range 2 {
				d := f.step().Document
				expect.Equalf(t, d.Group.Members[0].Address, c.a, "a")
				expect.Equalf(t, d.Group.Members[1].Address, c.b, "b")
				for _, m := range d.Group.Members {
					want := ""
					if m.Address != "" {
						want = string(f.findPod(m.Name).UID)
					}
					expect.Equalf(t, m.UID, want, "the UID of %s", m.Name)
				}
			}
		})
	}
}

// TestRevision tests that the revision increases with each change of the document, and with no other change.
func TestRevision(t *testing.T) {
	f := newDeclaredFacts("a 1, b 2").addPods("a", "b")
	first := f.step().Document.Revision
	expect.Equalf(t, first, noon.UnixMilli(), "first revision (as of the clock)")
	f.Now = noon.Add(time.Hour)
	expect.Equalf(t, f.step().Document.Revision, first, "revision of the same document")
	for name, change := range map[string]func(){
		"another digest": func() {
			f.Published = &v1.PublishedDocument{Revision: f.Revision, Digest: "of another operator"}
		},
		"an address":                     func() { f.Pods["a"].Status.PodIP = "10.9.9.9" },
		"a setting":                      func() { f.Group.Spec.Timing.HeartbeatMillis = 50 },
		"the generation":                 func() { f.Group.Generation++ },
		"the list":                       func() { f.Group.Spec.Members = parseMembers("a 1, b 3") },
		"an agent has a higher revision": func() { f.Revision += 1000 },
		"the clock is set back":          func() { f.Now = noon.Add(-time.Hour); f.Group.Generation++ },
	} {
		known := f.Revision
		change()
		known = max(known, f.Revision)
		if got := f.step().Document.Revision; got <= known && name != "an agent has a higher revision" || got < known {
			t.Errorf("%s: got revision %d after %d", name, got, known)
		}
	}
	f.Group.UID = "another"
	known := f.Revision
	f.Group.Status = v1.ElectionGroupStatus{}
	expect.AtLeastf(t, f.step().Document.Revision, known+1, "revision of the next group of this name")
}
