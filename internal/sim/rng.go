package sim

// rng draws numbers from a seed. It is splitmix64: small, fast, and the same on
// every machine for ever, so that a seed replays.
type rng uint64

func (r *rng) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below draws a number from 0 to n-1.
func (r *rng) below(n int) int { return int(r.next() >> 33 % uint64(n)) }

// between draws a number from lo to hi.
func (r *rng) between(lo, hi int) int { return lo + r.below(hi-lo+1) }

// percent is true in p of 100 draws.
func (r *rng) percent(p int) bool { return r.below(100) < p }
