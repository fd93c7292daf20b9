package streams

// ReportRate is how many reports of an agent the operator handles in a second, in
// the long run.
const ReportRate float64 = reportRate

// ReportBurst returns how many reports of an agent in some groups the operator
// handles at once.
func ReportBurst(groups int) int { return reportBurst + reportBurstPerGroup*groups }

// ByteRate is how many bytes the operator reads from an agent in a second, in the
// long run, and ByteBurst how many at once.
const (
	ByteRate  float64 = byteRate
	ByteBurst         = byteBurst
)

// ShortVersion is the version of an agent in the status and in metrics.
func ShortVersion(version string) string { return shortVersion(version) }
