package control

// CertificatesPath is the operator's path to which an agent POSTs an EnrollmentRequest.
const CertificatesPath = "/v1/certificates"

// EnrollmentRequest requests a certificate.
type EnrollmentRequest struct {
	// Token is the pod's service-account token for the audience conclave.dev.
	Token string `json:"token"`
	// Request is a certificate request in PEM. The operator uses its public key only.
	Request string `json:"request"`
}

// EnrollmentResponse has the agent's certificate.
type EnrollmentResponse struct {
	// Certificate, in PEM, is for the pod in each group of its annotation.
	Certificate string `json:"certificate"`
	// CABundle has the certificates of all CAs to trust, in PEM.
	CABundle string `json:"authorities"`
}

// ErrorResponse is the body of every response that reports a failure.
type ErrorResponse struct {
	Error string `json:"error"`
	// Revision is the lowest one that the agent accepts, if it refuses a document because of its revision.
	Revision int64 `json:"revision,omitempty"`
}
