package controllers

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/controllers/streams"
	"github.com/conclave-dev/conclave/internal/operator/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// membership.Facts.Missing: the wait begins anew with each version. A pod that has been
// away for long may come just before that, begin with the version before, and be
// seen by the operator only later.
func TestWaitForTheMissingBeginsAnewWithEachVersion(t *testing.T) {
	now := time.Now()
	s := &scene{
		now: now, memory: &memory{missing: map[string]time.Time{}},
		group: &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Name: "ledger"}},
	}
	publish := func(version uint32) {
		s.document = &control.Document{Revision: 1, Group: control.Group{Version: version}}
	}
	publish(1)
	one := []v1.Member{{Pod: "a", Priority: 1}, {Pod: "b", Priority: 2}, {Pod: "c", Priority: 3}}
	s.group.Status.MemberList = &v1.MemberList{Version: 1, State: v1.ListSettled, Members: one}
	if s.missing()["c"] {
		t.Error("nobody has waited yet")
	}
	s.now = now.Add(time.Hour)
	if !s.missing()["c"] {
		t.Error("it has been away for an hour")
	}
	s.group.Status.MemberList = &v1.MemberList{
		Version: 2, State: v1.ListAdopting, Members: one[:2], Previous: &v1.PreviousList{Version: 1, Members: one},
	}
	if s.missing()["c"] {
		t.Error("version 2 hasn't been published")
	}
	s.now = s.now.Add(time.Hour)
	publish(2)
	if s.missing()["c"] {
		t.Error("the wait must begin anew with version 2")
	}
	s.now = s.now.Add(time.Hour)
	if !s.missing()["c"] {
		t.Error("it has been away for an hour since")
	}
}

// In Available mode nobody waits for what has been granted. A pod that is replaced
// under its name stays a member all the same.
func TestWhoIsReplacedStaysInAvailableMode(t *testing.T) {
	s := &scene{now: time.Now(), memory: &memory{}, group: &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Name: "ledger"}}}
	s.group.Spec.Safety.Mode = v1.Available
	s.group.Status.MemberList = &v1.MemberList{Version: 1, State: v1.ListSettled, Members: []v1.Member{{Pod: "a", Priority: 1}}}
	s.document = &control.Document{Revision: 1, Group: control.Group{Version: 1}}
	if s.missing()["a"] {
		t.Error("it may be made anew at any moment")
	}
	if s.again.at.IsZero() {
		t.Error("nobody looks again whether it has been")
	}
	s.now = s.again.at
	if !s.missing()["a"] {
		t.Error("it wasn't made anew")
	}
}

// slow are authorities and an API server that take their time.
type slow struct {
	client.Reader
	takes time.Duration
	// meanwhile happens while it is waited for the authorities.
	meanwhile func()
}

func (s *slow) Bundle(context.Context) ([]byte, error) {
	time.Sleep(s.takes)
	s.meanwhile()
	return nil, nil
}

func (s *slow) Changed() <-chan struct{} { return nil }

func (s *slow) Client(...identity.Name) *tls.Config { return nil }

func (s *slow) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	time.Sleep(s.takes)
	return s.Reader.Get(ctx, key, object, options...)
}

// However long the operator waits for what it reads, the wait for a member begins
// when the API server is known to have no pod, and no sooner.
func TestWaitForTheMissingBeginsWhenTheyAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		adding := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1.AddToScheme} {
			if err := add(adding); err != nil {
				t.Fatal(err)
			}
		}
		group := &v1.ElectionGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger", UID: "6f0c"}}
		list := &v1.MemberList{
			Version: 2, State: v1.ListAdopting, Members: []v1.Member{{Pod: "a", Priority: 2}},
			Previous: &v1.PreviousList{Version: 1, Members: []v1.Member{{Pod: "a", Priority: 1}}},
		}
		group.Status.MemberList = list
		document, err := json.Marshal(membership.Document(group, list, nil))
		if err != nil {
			t.Fatal(err)
		}
		published := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: control.ConfigMapName("ledger"), Labels: map[string]string{v1.LabelGroup: "ledger"}},
			Data:       map[string]string{control.DocumentKey: string(document)},
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "a"}}
		cached := func(objects ...client.Object) client.Client {
			return fake.NewClientBuilder().WithScheme(adding).WithObjects(objects...).WithIndex(&corev1.Pod{}, podsByGroup, of(groupsOfPod)).Build()
		}
		for what, c := range map[string]struct{ cache, live client.Client }{
			"it goes while the authorities are read": {cached(published, pod.DeepCopy()), cached()},
			"the cache knows it no more":             {cached(published), cached()},
		} {
			delays := &slow{Reader: c.live, takes: time.Minute, meanwhile: func() { _ = c.cache.Delete(t.Context(), pod.DeepCopy()) }}
			o := &operator{client: c.cache, cache: c.cache, live: delays, options: Options{CA: delays}}
			o.streams = streams.New(streams.Options{Credentials: delays})
			missing := func() bool {
				s, err := o.gather(t.Context(), group)
				if err != nil {
					t.Fatal(err)
				}
				return s.plan().Missing["a"]
			}
			if missing() {
				t.Errorf("%s: nobody has waited yet", what)
			}
			delays.takes = 0
			time.Sleep(membership.AdoptionWait(group) - time.Nanosecond)
			if missing() {
				t.Errorf("%s: it hasn't been gone for long enough", what)
			}
			time.Sleep(time.Nanosecond)
			if !missing() {
				t.Errorf("%s: it has been gone for long enough", what)
			}
		}
	})
}
