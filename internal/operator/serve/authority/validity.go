//go:build !conclave_fastrotation

package authority

import "time"

// CertificateValidity is how long an issued certificate is valid. The duration of a
// rotation, and all other intervals of this package, follow from it.
const CertificateValidity = 24 * time.Hour

// overlap is for how long an agent can be out of touch with the identity service, and still enroll: see Schedule.
const overlap = 14 * CertificateValidity
