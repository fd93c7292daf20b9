package streams

// NewsRate is how much news an agent may have in a second, in the long run.
const NewsRate float64 = newsRate

// NewsBurst is how much news an agent in so many groups may have at once.
func NewsBurst(groups int) int { return newsBurst + newsPerGroup*groups }

// BulkRate is how many bytes are read of an agent in a second, in the long run,
// and BulkBurst how many at once.
const (
	BulkRate  float64 = bulkRate
	BulkBurst         = bulkBurst
)
