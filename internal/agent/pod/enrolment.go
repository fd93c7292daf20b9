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
	// answerMax has room for the documents of a hundred large groups.
	answerMax  = 32 << 20
	answerSoon = 10 * time.Second
	tokenMax   = 64 << 10
)

// failure is why there is no certificate. Those of a kind are told once.
type failure struct {
	kind string
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func failed(kind, format string, args ...any) error {
	return &failure{kind, fmt.Errorf(format, args...)}
}

// enrol gets a certificate from the identity service for a key of its own, keeps
// it, and returns the documents that came with it.
func (s *Settings) enrol(ctx context.Context, c *credentials) ([]string, error) {
	token, err := s.token()
	if err != nil {
		return nil, err
	}
	secret, request, err := newKey()
	if err != nil {
		return nil, failed("key", "make a key: %w", err)
	}
	authorities := c.forIdentity()
	if authorities == nil {
		return nil, failed("authorities", "no authority is known by which to trust the identity service: wait until one is in %s, "+
			"or put one into CONCLAVE_CA", filepath.Join(s.MountDir, "GROUP", control.CABundleKey))
	}
	answer, err := s.ask(ctx, authorities, control.EnrollmentRequest{Token: token, Request: string(request)})
	if err != nil {
		return nil, err
	}
	pair := identity.Pair{Cert: []byte(answer.Certificate), Key: secret}
	names, err := identity.Verify(pair, []byte(answer.CABundle))
	if err != nil {
		return nil, failed("answer", "the identity service's answer: %w", err)
	}
	if name := names[0]; name.Domain != s.Namespace || name.Member != s.Pod {
		return nil, failed("answer", "the identity service's answer: the certificate is for %s, and not for pod %s in namespace %s",
			name, s.Pod, s.Namespace)
	}
	if err := c.keep(pair, []byte(answer.CABundle)); err != nil {
		return nil, failed("disk", "%w", err)
	}
	return answer.Documents, nil
}

// token is read each time: it is replaced long before it expires.
func (s *Settings) token() (string, error) {
	path := filepath.Join(s.MountDir, "token")
	file, err := os.Open(path)
	if err != nil {
		return "", failed("token", "the token to show to the identity service: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, tokenMax))
	if err != nil {
		return "", failed("token", "the token to show to the identity service: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", failed("token", "the token to show to the identity service: %s is empty", path)
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
func (s *Settings) ask(ctx context.Context, authorities *x509.CertPool, enrolment control.EnrollmentRequest) (*control.EnrollmentResponse, error) {
	body, err := json.Marshal(enrolment)
	if err != nil {
		return nil, failed("key", "%w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, answerSoon)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.IdentityURL+control.CertificatesPath, bytes.NewReader(body))
	if err != nil {
		return nil, failed("reach", "%w", err)
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
		return nil, failed("reach", "the identity service can't be asked: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerMax))
	if err != nil {
		return nil, failed("reach", "the identity service's answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, refusal(response.Status, text)
	}
	var answer control.EnrollmentResponse
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, failed("answer", "the identity service's answer: %w", err)
	}
	return &answer, nil
}

func refusal(status string, text []byte) error {
	const most = 300
	var said control.ErrorResponse
	if json.Unmarshal(text, &said) != nil || said.Error == "" {
		said.Error = "without saying why"
	}
	if len(said.Error) > most {
		said.Error = said.Error[:most] + "..."
	}
	return failed("refused "+status+said.Error, "the identity service refuses a certificate (%s): %s", status, said.Error)
}

// kind tells failures apart.
func kind(err error) string {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.kind
	}
	return err.Error()
}
