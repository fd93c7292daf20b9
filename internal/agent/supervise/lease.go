package supervise

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/clock"
)

// errNotRenewed is why a program has to end whose Lease couldn't be renewed.
var errNotRenewed = errors.New("the Lease was not renewed in time")

// heldLease is a Lease that the program holds, too, as long as there are replicas that know no other election: see ADR
// 63. Its durations have the proportions of client-go's defaults.
type heldLease struct {
	// at is the URL of Leases, and account the directory of the service account.
	at, account, name, identity    string
	duration, renewDeadline, retry time.Duration
	http                           http.Client
	log                            *slog.Logger

	// seen is what others have last written, first read at seenAt. heard is when the API server last said who has the
	// Lease, and renewed when the last request was sent that has renewed it.
	seen                   leaseSpec
	seenAt, heard, renewed time.Duration
}

type leaseObject struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       leaseSpec      `json:"spec"`
}

type leaseSpec struct {
	HolderIdentity       string `json:"holderIdentity,omitempty"`
	LeaseDurationSeconds int    `json:"leaseDurationSeconds,omitempty"`
	AcquireTime          string `json:"acquireTime,omitempty"`
	RenewTime            string `json:"renewTime,omitempty"`
	LeaseTransitions     int    `json:"leaseTransitions,omitempty"`
}

// newLease returns the Lease NAME or NAME/NAMESPACE, by default in the namespace of the pod.
func newLease(o Options) (*heldLease, error) {
	host, _ := os.Hostname() // It is for people.
	name, namespace, qualified := strings.Cut(o.AlsoLease, "/")
	l := &heldLease{
		identity: host + "_" + rand.Text(), account: o.ServiceAccount, name: name, log: o.Log,
		duration: o.LeaseDuration.Truncate(time.Second), renewDeadline: o.LeaseDuration * 2 / 3,
		retry: o.LeaseDuration * 2 / 15,
	}
	own, failed := os.ReadFile(filepath.Join(o.ServiceAccount, "namespace"))
	ca, err := os.ReadFile(filepath.Join(o.ServiceAccount, "ca.crt"))
	if !qualified {
		namespace, err = string(own), cmp.Or(err, failed)
	}
	server := os.Getenv("KUBERNETES_SERVICE_HOST")
	roots := x509.NewCertPool()
	switch {
	case !isName(name), err == nil && !isName(namespace):
		return nil, fmt.Errorf("a Lease must be NAME or NAME/NAMESPACE, got %q", o.AlsoLease)
	case server == "":
		return nil, errors.New("a Lease needs the API server of a pod: KUBERNETES_SERVICE_HOST isn't set")
	case err != nil:
		return nil, fmt.Errorf("a Lease needs the pod's service account: %w", err)
	case !roots.AppendCertsFromPEM(ca):
		return nil, fmt.Errorf("ca.crt in %s has no certificate", o.ServiceAccount)
	case l.duration < time.Second:
		return nil, fmt.Errorf("the duration of a Lease must be at least 1s, got %s", o.LeaseDuration)
	}
	l.http.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	l.at = "https://" + net.JoinHostPort(server, os.Getenv("KUBERNETES_SERVICE_PORT")) +
		"/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"
	return l, nil
}

// isName reports whether a text can be a part of the path of a URL. The API server knows which names are valid.
func isName(text string) bool { return text != "" && url.PathEscape(text) == text }

// hold calls work while this process has the Lease, and again if it was lost meanwhile, until ctx ends or work reports
// that it is over. It returns, too, if the API server doesn't say who has the Lease: another process may reach it.
func (l *heldLease) hold(ctx context.Context, work func(context.Context) (over bool)) (over bool) {
	l.heard = clock.Boottime()
	for ctx.Err() == nil {
		if l.acquire(ctx) {
			if lost, over := l.workIn(ctx, work); !lost || over {
				return over
			}
			l.heard = clock.Boottime()
		}
		if clock.Boottime()-l.heard >= l.duration {
			l.log.Warn("gave the office up: the API server doesn't say who holds the Lease", "lease", l.name)
			break
		}
		select {
		case <-time.After(l.retry):
		case <-ctx.Done():
		}
	}
	return false
}

// workIn calls work, and renews the Lease until it has returned.
func (l *heldLease) workIn(ctx context.Context, work func(context.Context) (over bool)) (lost, over bool) {
	inLease, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	working, end := context.WithCancel(context.WithoutCancel(ctx))
	worked := make(chan bool, 1)
	go func() {
		defer end()
		worked <- work(inLease)
	}()
	for {
		select {
		case over := <-worked:
			l.release(context.WithoutCancel(ctx))
			return lost, over
		case <-time.After(l.retry):
		}
		left := l.renewed + l.renewDeadline - clock.Boottime()
		renewing, cancel := context.WithTimeout(working, left)
		l.acquire(renewing)
		cancel()
		if clock.Boottime()-l.renewed >= l.renewDeadline && !lost {
			lost = true
			lose(errNotRenewed)
		}
	}
}

// acquire acquires or renews the Lease. It reports whether this process has it then.
func (l *heldLease) acquire(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, l.renewDeadline/2)
	defer cancel()
	sent := clock.Boottime()
	object, status, err := l.send(ctx, http.MethodGet, nil)
	method, now := http.MethodPut, clock.Boottime()
	switch {
	case err == nil && status == http.StatusNotFound:
		method = http.MethodPost
		object = leaseObject{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Metadata: map[string]any{"name": l.name}}
	case err != nil || status != http.StatusOK:
		l.log.Warn("cannot read the Lease", "lease", l.name, "status", status, "error", err)
		return false
	}
	l.heard = now
	at := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
	s := &object.Spec
	if s.HolderIdentity != l.identity {
		if *s != l.seen {
			l.seen, l.seenAt = *s, now
		}
		if s.HolderIdentity != "" && now < l.seenAt+max(l.duration, time.Duration(s.LeaseDurationSeconds)*time.Second) {
			return false
		}
		s.HolderIdentity, s.AcquireTime = l.identity, at
		s.LeaseTransitions++
	}
	s.RenewTime, s.LeaseDurationSeconds = at, int(l.duration/time.Second)
	// It fails if another process has changed the Lease since it was read.
	_, status, err = l.send(ctx, method, &object)
	if err != nil || status >= http.StatusMultipleChoices {
		l.log.Warn("cannot acquire the Lease", "lease", l.name, "status", status, "error", err)
		return false
	}
	l.renewed = sent
	return clock.Boottime()-sent < l.renewDeadline
}

// release releases the Lease if this process has it. Nothing of the program runs any more.
func (l *heldLease) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.retry)
	defer cancel()
	object, status, err := l.send(ctx, http.MethodGet, nil)
	if err == nil && status == http.StatusOK && object.Spec.HolderIdentity == l.identity {
		object.Spec.HolderIdentity, object.Spec.LeaseDurationSeconds = "", 1
		_, _, _ = l.send(ctx, http.MethodPut, &object) // Otherwise, it expires.
	}
}

// send sends a request for the Lease. Tokens expire, so it reads the latest one.
func (l *heldLease) send(ctx context.Context, method string, object *leaseObject) (answer leaseObject, status int,
	err error,
) {
	token, err := os.ReadFile(filepath.Join(l.account, "token"))
	body, failed := json.Marshal(object)
	at := l.at
	if method != http.MethodPost {
		at += "/" + l.name
	}
	if object == nil {
		body = nil
	}
	request, invalid := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err = errors.Join(err, failed, invalid); err != nil {
		return answer, 0, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Content-Type", "application/json")
	response, err := l.http.Do(request)
	if err != nil {
		return answer, 0, err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(http.MaxBytesReader(nil, response.Body, 1<<20)).Decode(&answer); err != nil {
		return answer, response.StatusCode, fmt.Errorf("invalid response: %w", err)
	}
	return answer, response.StatusCode, nil
}
