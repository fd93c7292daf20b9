package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/conclave-dev/conclave/api/v1"
	"github.com/conclave-dev/conclave/internal/operator/serve/webhook"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// TestUnfinishedRequestsDontExhaustManager has clients without credentials that send large requests, and never finish
// them. The manager must stay below its memory limit, and still inject agents.
func TestUnfinishedRequestsDontExhaustManager(t *testing.T) {
	const (
		hosts       = 4
		connections = 60 // for each host and port
		body        = 4<<20 - 1
		memoryLimit = 512 << 20 // that of config/manager
	)
	e := newEnv(t)
	e.start()
	e.eventually("the manager is ready", e.ready)
	before := e.peakMemory()
	var attackers sync.WaitGroup
	for _, target := range []struct{ flag, service, path string }{
		{"webhook-port", webhookService, webhook.Path},
		{"identity-port", identityService, control.CertificatesPath},
		{"metrics-address", metricsService, "/metrics"},
	} {
		config := e.tlsConfig(target.service)
		for i := range hosts * connections {
			host := net.IPv4(127, 0, 2, byte(1+i%hosts))
			attackers.Go(func() { e.sendUnfinished(host, e.addresses[target.flag], target.path, body, config) })
		}
	}
	attackers.Wait()
	e.expectInjection(t)
	if peak := e.peakMemory(); peak > memoryLimit {
		t.Errorf("got a peak of %d MiB of memory, %d MiB before; want at most %d MiB", peak>>20, before>>20, memoryLimit>>20)
	} else {
		t.Logf("peak of memory: %d MiB, %d MiB before", peak>>20, before>>20)
	}
}

// sendUnfinished sends all but the last byte of a request, as far as the manager reads it.
// The connection stays open until the test ends.
func (e *env) sendUnfinished(host net.IP, address, path string, body int, config *tls.Config) {
	dialer := tls.Dialer{NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: host}}, Config: config}
	conn, err := dialer.DialContext(e.t.Context(), "tcp", address)
	if err != nil {
		return // The manager refuses the connection.
	}
	e.t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn,
		"POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
		path, body); err != nil {
		return
	}
	_, _ = io.WriteString(conn, strings.Repeat("x", body-1)) // Fails when the manager closes the connection.
}

// expectInjection waits until the webhook injects an agent.
func (e *env) expectInjection(t *testing.T) {
	t.Helper()
	review := e.review()
	e.eventually("the webhook injects an agent", func() error { return e.admit(t.Context(), review) })
}

// review returns the admission request of a pod.
func (e *env) review() []byte {
	e.t.Helper()
	pod, err := json.Marshal(&corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "ledger-0", Labels: map[string]string{v1.LabelAgent: v1.AgentEnabled},
			Annotations: map[string]string{v1.AnnotationGroups: "ledger"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "application", Image: "none"}}},
	})
	must.Succeed(e.t, err)
	review, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Operation: admissionv1.Create, Namespace: "default",
			Object: runtime.RawExtension{Raw: pod},
		},
	})
	must.Succeed(e.t, err)
	return review
}

// admit sends an admission request to the webhook, over a connection of its own.
func (e *env) admit(ctx context.Context, review []byte) error {
	status, text, err := e.request(ctx, "webhook-port", webhookService, webhook.Path, "", review)
	if err != nil {
		return err
	}
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusOK || answer.Response == nil ||
		len(answer.Response.Patch) == 0 {
		return fmt.Errorf("got status %d and no patch: %s: %w", status, text, err)
	}
	return nil
}

// peakMemory returns the peak of the manager's resident memory in bytes.
func (e *env) peakMemory() int {
	e.t.Helper()
	file, err := os.Open(filepath.Join("/proc", strconv.Itoa(e.pid), "status"))
	must.Succeed(e.t, err)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), "VmHWM:"); found {
			kilobytes, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(value, "kB")))
			must.Succeed(e.t, err)
			return kilobytes << 10
		}
	}
	e.t.Fatal("the manager's status has no VmHWM")
	return 0
}
