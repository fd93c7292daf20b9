package sim

// rng is a random number generator, splitmix64. It is small and fast, and draws the
// same numbers on every platform and in every version, so a seed always replays the
// same schedule.
type rng uint64

func (r *rng) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below draws a number in [0, n).
func (r *rng) below(n int) int { return int(r.next() >> 33 % uint64(n)) }

// between draws a number in [lo, hi].
func (r *rng) between(lo, hi int) int { return lo + r.below(hi-lo+1) }

// percent returns true with a probability of p percent.
func (r *rng) percent(p int) bool { return r.below(100) < p }
