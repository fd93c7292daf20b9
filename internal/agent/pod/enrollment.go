package pod

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/conclave-dev/conclave/internal/protocol/control"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

const (
	// maxResponse has room for the documents of a hundred large groups.
	maxResponse     = 32 << 20
	responseTimeout = 10 * time.Second
	maxToken        = 64 << 10
)

// failure is why there is no certificate. Those of a kind are told once.
type enrollmentError struct {
	kind string
	err  error
}

func (f *enrollmentError) Error() string { return f.err.Error() }
func (f *enrollmentError) Unwrap() error { return f.err }

func enrollmentErrorf(kind, format string, args ...any) error {
	return &enrollmentError{kind, fmt.Errorf(format, args...)}
}

// enrol gets a certificate from the identity service for a key of its own, keeps
// it, and returns the documents that came with it.
func (s *Settings) enroll(ctx context.Context, c *credentials) ([]string, error) {
	token, err := s.readToken()
	if err != nil {
		return nil, err
	}
	secret, request, err := newKey()
	if err != nil {
		return nil, enrollmentErrorf("key", "make a key: %w", err)
	}
	authorities := c.identityServiceCAs()
	if authorities == nil {
		return nil, enrollmentErrorf("authorities", "no authority is known by which to trust the identity service: wait until one is in %s, "+
			"or put one into CONCLAVE_CA", filepath.Join(s.MountDir, "GROUP", control.CABundleKey))
	}
	answer, err := s.requestCertificate(ctx, authorities, control.EnrollmentRequest{Token: token, Request: string(request)})
	if err != nil {
		return nil, err
	}
	pair := identity.Pair{Cert: []byte(answer.Certificate), Key: secret}
	names, err := identity.Verify(pair, []byte(answer.CABundle))
	if err != nil {
		return nil, enrollmentErrorf("answer", "the identity service's answer: %w", err)
	}
	if name := names[0]; name.Domain != s.Namespace || name.Member != s.Pod {
		return nil, enrollmentErrorf("answer", "the identity service's answer: the certificate is for %s, and not for pod %s in namespace %s",
			name, s.Pod, s.Namespace)
	}
	if err := c.store(pair, []byte(answer.CABundle)); err != nil {
		return nil, enrollmentErrorf("disk", "%w", err)
	}
	return answer.Documents, nil
}

// token is read each time: it is replaced long before it expires.
func (s *Settings) readToken() (string, error) {
	path := filepath.Join(s.MountDir, "token")
	file, err := os.Open(path)
	if err != nil {
		return "", enrollmentErrorf("token", "the token to show to the identity service: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxToken))
	if err != nil {
		return "", enrollmentErrorf("token", "the token to show to the identity service: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", enrollmentErrorf("token", "the token to show to the identity service: %s is empty", path)
	}
	return token, nil
}

// newKey makes a key, and a request for its certificate.
func newKey() (secret, request []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// ask asks the identity service once. Redirects aren't followed: the token is for
// nobody else.
func (s *Settings) requestCertificate(ctx context.Context, authorities *x509.CertPool, enrolment control.EnrollmentRequest) (*control.EnrollmentResponse, error) {
	body, err := json.Marshal(enrolment)
	if err != nil {
		return nil, enrollmentErrorf("key", "%w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.IdentityURL+control.CertificatesPath, bytes.NewReader(body))
	if err != nil {
		return nil, enrollmentErrorf("reach", "%w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	client := &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: authorities},
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, enrollmentErrorf("reach", "the identity service can't be asked: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return nil, enrollmentErrorf("reach", "the identity service's answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, refusedError(response.Status, text)
	}
	var answer control.EnrollmentResponse
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, enrollmentErrorf("answer", "the identity service's answer: %w", err)
	}
	return &answer, nil
}

func refusedError(status string, text []byte) error {
	const most = 300
	var said control.ErrorResponse
	if json.Unmarshal(text, &said) != nil || said.Error == "" {
		said.Error = "without saying why"
	}
	if len(said.Error) > most {
		said.Error = said.Error[:most] + "..."
	}
	return enrollmentErrorf("refused "+status+said.Error, "the identity service refuses a certificate (%s): %s", status, said.Error)
}

// kind tells failures apart.
func errorKind(err error) string {
	if f, ok := errors.AsType[*enrollmentError](err); ok {
		return f.kind
	}
	return err.Error()
}
