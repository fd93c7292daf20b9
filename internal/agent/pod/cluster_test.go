package pod

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/election/memberlist"
	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
	"github.com/conclave-dev/conclave/internal/testing/must"
)

// cluster has the pods of a test, an identity service and an operator.
type cluster struct {
	t        *testing.T
	issuer   *identity.CA
	ca       identity.Pair
	url      string
	operator *identity.Files
	network  byte
	pods     map[string]*testPod

	mu sync.Mutex
	// valid is the lifetime of certificates. If refusal isn't "", the identity service
	// refuses all requests with this error.
	valid     time.Duration
	refusal   string
	documents []control.Document
	tokens    []string
	// groups are those in certificates.
	groups []string
}

// networks counts the clusters, so that each one has its own addresses.
var networks atomic.Int32

// newCluster returns a cluster without pods, for a test that runs in parallel with others.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	t.Parallel()
	return newSequentialCluster(t)
}

// newSequentialCluster is newCluster for a test that runs alone, or is parallel already.
func newSequentialCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, valid: time.Hour, groups: []string{"ledger", "audit"}, pods: map[string]*testPod{}, network: byte(
		networks.Add(1))}
	var err error
	if c.issuer, c.ca, err = identity.NewCA("test", 24*time.Hour); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	c.url = "https://" + listener.Addr().String()
	server := &http.Server{Handler: http.HandlerFunc(c.serveEnrollment), ErrorLog: slog.NewLogLogger(slog.DiscardHandler,
		0)}
	go func() {
		_ = server.Serve(tls.NewListener(listener,
			&tls.Config{Certificates: []tls.Certificate{c.serverCertificate()}, MinVersion: tls.VersionTLS13}))
	}()
	t.Cleanup(func() { server.Close() })
	c.operator = c.certificate(control.Operator)
	return c
}

// serverCertificate creates the certificate of the identity service.
func (c *cluster) serverCertificate() tls.Certificate {
	c.t.Helper()
	der, key := c.sign(&x509.Certificate{
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP("127.0.0.1")}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// sign creates a key, and lets the CA sign a certificate for it.
func (c *cluster) sign(template *x509.Certificate) (der []byte, key *ecdsa.PrivateKey) {
	c.t.Helper()
	ca, err := tls.X509KeyPair(c.ca.Cert, c.ca.Key)
	must.Succeed(c.t, err)
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		c.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(1)
	if der, err = x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey); err != nil {
		c.t.Fatal(err)
	}
	return der, key
}

// certificate creates the files of a certificate for names.
func (c *cluster) certificate(names ...identity.Name) *identity.Files {
	c.t.Helper()
	pair, err := c.issuer.Issue(names, time.Hour)
	must.Succeed(c.t, err)
	return c.files(pair)
}

// files writes the files of a certificate, with this cluster's CA and others.
func (c *cluster) files(pair identity.Pair, others ...identity.Pair) *identity.Files {
	c.t.Helper()
	dir := c.t.TempDir()
	paths := identity.Paths{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), CA: filepath.Join(dir, "ca")}
	trusted := slices.Clone(c.ca.Cert)
	for _, other := range others {
		trusted = append(trusted, other.Cert...)
	}
	for path, text := range map[string][]byte{paths.Cert: pair.Cert, paths.Key: pair.Key, paths.CA: trusted} {
		must.Succeed(c.t, os.WriteFile(path, text, 0o600))
	}
	files, err := identity.Open(paths, nil)
	must.Succeed(c.t, err)
	return files
}

// uidOf returns the UID of a pod.
func uidOf(pod string) string { return "uid-of-" + pod }

// serveEnrollment responds as the operator's identity service does. A token is NAMESPACE/POD.
func (c *cluster) serveEnrollment(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var request control.EnrollmentRequest
	err := json.NewDecoder(r.Body).Decode(&request)
	c.tokens = append(c.tokens, request.Token)
	namespace, pod, named := strings.Cut(request.Token, "/")
	block, _ := pem.Decode([]byte(request.Request))
	if err != nil || block == nil || !named || r.URL.Path != control.CertificatesPath || c.refusal != "" {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(control.ErrorResponse{Error: c.refusal})
		return
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || parsed.CheckSignature() != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var names identity.Names
	for _, group := range c.groups {
		names = append(names, identity.Name{Domain: namespace, Group: group, Member: pod})
	}
	if namespace == operatorNamespace {
		names = identity.Names{control.Witness(pod)}
	}
	cert, err := c.issuer.Sign(names, uidOf(pod), parsed.PublicKey, c.valid)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(control.EnrollmentResponse{Certificate: string(cert), CABundle: string(c.ca.Cert)})
	for _, d := range c.documents {
		go c.pods[pod].offer(d) //nolint:contextcheck // It may last longer than the request.
	}
}

// offer pushes a document as soon as the agent accepts connections, as the operator does after an enrollment.
func (g *testPod) offer(d control.Document) {
	body := encode(g.t, d)
	for g.t.Context().Err() == nil {
		if status, _ := g.callOperatorAPI(g.operator, http.MethodPut, control.GroupPath(d.Group.Name), body); status != 0 &&
			status != http.StatusForbidden {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// publish sets the documents that agents get when they have enrolled.
func (c *cluster) publish(documents ...control.Document) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.documents = documents
}

// selectBy sets the groups that select the pods: the kubelet passes them on to the agents.
func (c *cluster) selectBy(groups ...string) {
	c.mu.Lock()
	c.groups, c.refusal = groups, ""
	if len(groups) == 0 {
		c.refusal = "no group selects the pod yet"
	}
	c.mu.Unlock()
	for name, pod := range c.pods {
		pod.mount(map[string]string{"token": "bank/" + name, "selected-by": strings.Join(groups, ",")})
	}
}

// enrollments counts the requests of a pod for certificates.
func (c *cluster) enrollments(pod string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := 0
	for _, token := range c.tokens {
		if token == "bank/"+pod {
			count++
		}
	}
	return count
}

func (c *cluster) refuseWith(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusal = why
}

// encode encodes a document as an operator does.
func encode(t *testing.T, d control.Document) string {
	t.Helper()
	text, err := json.Marshal(d)
	must.Succeed(t, err)
	return string(text)
}

// document returns a document of group ledger with version 1 of the list. The members
// are in ascending order of their priority.
func (c *cluster) document(revision int64, names ...string) control.Document {
	d := control.Document{UID: "uid-1", Generation: 1, Revision: revision, Group: control.Group{
		Name: "ledger", Algorithm: "StatusTable",
		Safety:      control.Safety{Mode: "Majority", LeaseMillis: 500, LongestLeaseMillis: 500},
		Preemption:  control.Preemption{Policy: "Always", StableMillis: new(int32)},
		Timing:      control.Timing{HeartbeatMillis: 100},
		Application: control.Application{Session: "Optional"},
		List:        memberlist.List{Version: 1, Members: c.members(names...)},
	}}
	return d
}

// steady makes the timeouts so long that a coordinator keeps its office on a busy machine.
func steady(d control.Document) control.Document {
	suspicionTimeout := int32(3000)
	d.Group.Safety.LeaseMillis, d.Group.Safety.LongestLeaseMillis, d.Group.Timing.SuspicionTimeoutMillis = 4000,
		4000, &suspicionTimeout
	return d
}

func (c *cluster) members(names ...string) []memberlist.Member {
	var members []memberlist.Member
	for i, name := range names {
		m := memberlist.Member{Name: name, Priority: uint32(10 * (i + 1))}
		if pod := c.pods[name]; pod != nil {
			m.Address, m.Identity = pod.settings.Peers, pod.identity
		}
		members = append(members, m)
	}
	return slices.Clip(members)
}
